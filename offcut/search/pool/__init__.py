"""A pool of devices: workers of a dask scheduler, each with one device and one task in flight."""

from offcut.search.pool.dealer import REQUEUES as REQUEUES
from offcut.search.pool.dealer import Dealer as Dealer
from offcut.search.pool.in_flight import Device as Device
from offcut.search.pool.in_flight import Devices as Devices
from offcut.search.pool.in_flight import Flights as Flights
from offcut.search.pool.in_flight import Landed as Landed
from offcut.search.pool.settings import LOCAL as LOCAL
from offcut.search.pool.settings import RESOURCE as RESOURCE
from offcut.search.pool.settings import Pool as Pool
from offcut.search.pool.settings import connected as connected
from offcut.search.pool.settings import pool_of as pool_of
