"""A pool of devices: workers of a dask scheduler, each with one device and one task in flight."""

from offcut.search.pool.connection import LOCAL as LOCAL
from offcut.search.pool.connection import RESOURCE as RESOURCE
from offcut.search.pool.connection import Pool as Pool
from offcut.search.pool.connection import connect as connect
from offcut.search.pool.connection import pool_of as pool_of
from offcut.search.pool.tasks import REQUEUES as REQUEUES
from offcut.search.pool.tasks import Device as Device
from offcut.search.pool.tasks import Devices as Devices
from offcut.search.pool.tasks import InFlightTasks as InFlightTasks
from offcut.search.pool.tasks import TaskDispatcher as TaskDispatcher
from offcut.search.pool.tasks import TaskResult as TaskResult
