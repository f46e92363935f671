"""A pool of devices: workers of a dask scheduler, each with one device and one task in flight."""

from offcut.search.pool.in_flight import Device, Devices, Flights, Landed
from offcut.search.pool.settings import LOCAL, RESOURCE, Pool, connected, pool_of

__all__ = [
    "LOCAL",
    "RESOURCE",
    "Device",
    "Devices",
    "Flights",
    "Landed",
    "Pool",
    "connected",
    "pool_of",
]
