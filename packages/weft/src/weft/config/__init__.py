"""`wf.config`: the devices of this process, and the defaults of its sessions."""

from weft import _lazy
from weft.config import (
    experimental as experimental,
    optimizer as optimizer,
    threading as threading,
)
from weft_exec.devices import virtual as _virtual
from weft_exec.devices.machine import (
    PhysicalDevice as PhysicalDevice,
    get_visible_devices as get_visible_devices,
    list_physical_devices as list_physical_devices,
    set_visible_devices as set_visible_devices,
)
from weft_exec.devices.virtual import (
    LogicalDevice as LogicalDevice,
    list_logical_devices as list_logical_devices,
)
from weft_exec.settings import (
    get_soft_device_placement as get_soft_device_placement,
    set_soft_device_placement as set_soft_device_placement,
)
from weft_graph.ir.tf2_switches import (
    functions_run_eagerly as functions_run_eagerly,
    run_functions_eagerly as run_functions_eagerly,
)

experimental_functions_run_eagerly = functions_run_eagerly
experimental_run_functions_eagerly = run_functions_eagerly
LogicalDeviceConfiguration = _virtual.VirtualDeviceConfiguration
get_logical_device_configuration = _virtual.get_virtual_device_configuration
set_logical_device_configuration = _virtual.set_virtual_device_configuration

_lazy.hint(__name__)
