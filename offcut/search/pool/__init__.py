"""A pool of devices: workers of a dask scheduler, each with one device and one task in flight."""

from offcut.search.pool.connection import connected
from offcut.search.pool.dealer import REQUEUES, Dealer
from offcut.search.pool.devices import Device, Devices
from offcut.search.pool.flights import Flights, Landed
from offcut.search.pool.settings import LOCAL, RESOURCE, Pool, pool_of

__all__ = [
    "LOCAL",
    "REQUEUES",
    "RESOURCE",
    "Dealer",
    "Device",
    "Devices",
    "Flights",
    "Landed",
    "Pool",
    "connected",
    "pool_of",
]
