"""Training loops: sessions that initialize, restore, call hooks around steps, and recover."""

from __future__ import annotations

from weft_io.training.checkpoint_hooks import CheckpointSaverHook, CheckpointSaverListener
from weft_io.training.hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from weft_io.training.logging_hooks import (
    LoggingTensorHook,
    NanLossDuringTrainingError,
    NanTensorHook,
)
from weft_io.training.monitored_session import MonitoredSession, SingularMonitoredSession
from weft_io.training.monitored_training import MonitoredTrainingSession
from weft_io.training.scaffold import Scaffold
from weft_io.training.session_creators import (
    ChiefSessionCreator,
    SessionCreator,
    WorkerSessionCreator,
)
from weft_io.training.session_manager import SessionManager
from weft_io.training.step_hooks import (
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    StopAtStepHook,
)
from weft_io.training.summary_hooks import StepCounterHook, SummarySaverHook
from weft_io.training.supervisor import Supervisor
from weft_io.training.train_loop import basic_train_loop

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "LoggingTensorHook",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "Scaffold",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "WorkerSessionCreator",
    "basic_train_loop",
]
