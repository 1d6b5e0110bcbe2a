"""`wf.config.experimental`: splitting the CPU into several devices."""

from weft_exec.devices.virtual import (
    VirtualDeviceConfiguration as VirtualDeviceConfiguration,
    get_virtual_device_configuration as get_virtual_device_configuration,
    list_physical_devices as list_physical_devices,
    set_virtual_device_configuration as set_virtual_device_configuration,
)
