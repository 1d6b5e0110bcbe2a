"""`wf.train`: optimizers, savers and what goes with training."""

import typing as _typing

from weft_autodiff.optimizers.adadelta import AdadeltaOptimizer as AdadeltaOptimizer
from weft_autodiff.optimizers.adagrad import (
    AdagradDAOptimizer as AdagradDAOptimizer,
    AdagradOptimizer as AdagradOptimizer,
    ProximalAdagradOptimizer as ProximalAdagradOptimizer,
)
from weft_autodiff.optimizers.adam import AdamOptimizer as AdamOptimizer
from weft_autodiff.optimizers.ftrl import FtrlOptimizer as FtrlOptimizer
from weft_autodiff.optimizers.gradient_descent import (
    GradientDescentOptimizer as GradientDescentOptimizer,
    ProximalGradientDescentOptimizer as ProximalGradientDescentOptimizer,
)
from weft_autodiff.optimizers.learning_rate_decay import (
    cosine_decay as cosine_decay,
    cosine_decay_restarts as cosine_decay_restarts,
    exponential_decay as exponential_decay,
    inverse_time_decay as inverse_time_decay,
    linear_cosine_decay as linear_cosine_decay,
    natural_exp_decay as natural_exp_decay,
    noisy_linear_cosine_decay as noisy_linear_cosine_decay,
    piecewise_constant as piecewise_constant,
    piecewise_constant_decay as piecewise_constant_decay,
    polynomial_decay as polynomial_decay,
)
from weft_autodiff.optimizers.momentum import MomentumOptimizer as MomentumOptimizer
from weft_autodiff.optimizers.moving_averages import (
    ExponentialMovingAverage as ExponentialMovingAverage,
)
from weft_autodiff.optimizers.optimizer import Optimizer as Optimizer
from weft_autodiff.optimizers.rmsprop import RMSPropOptimizer as RMSPropOptimizer
from weft_autodiff.optimizers.training_util import (
    assert_global_step as assert_global_step,
    create_global_step as create_global_step,
    get_global_step as get_global_step,
    get_or_create_global_step as get_or_create_global_step,
    global_step as global_step,
)
from weft_io.bundle.saver_builder import BundleSaverBuilder as BundleSaverBuilder
from weft_io.checkpoint import reader as _reader
from weft_io.checkpoint.state import (
    checkpoint_exists as checkpoint_exists,
    generate_checkpoint_state_proto as generate_checkpoint_state_proto,
    get_checkpoint_mtimes as get_checkpoint_mtimes,
    get_checkpoint_state as get_checkpoint_state,
    latest_checkpoint as latest_checkpoint,
    list_variables as list_variables,
    load_checkpoint as load_checkpoint,
    load_variable as load_variable,
    remove_checkpoint as remove_checkpoint,
    update_checkpoint_state as update_checkpoint_state,
)
from weft_io.coordination.coordinator import (
    Coordinator as Coordinator,
    LooperThread as LooperThread,
)
from weft_io.coordination.queue_runner import (
    QueueRunner as QueueRunner,
    add_queue_runner as add_queue_runner,
    start_queue_runners as start_queue_runners,
)
from weft_io.graphs.graph_io import write_graph as write_graph
from weft_io.graphs.meta_graph import (
    export_meta_graph as export_meta_graph,
    import_meta_graph as import_meta_graph,
)
from weft_io.input.batching import (
    batch as batch,
    batch_join as batch_join,
    maybe_batch as maybe_batch,
    maybe_batch_join as maybe_batch_join,
    maybe_shuffle_batch as maybe_shuffle_batch,
    maybe_shuffle_batch_join as maybe_shuffle_batch_join,
    shuffle_batch as shuffle_batch,
    shuffle_batch_join as shuffle_batch_join,
)
from weft_io.input.bucketing import (
    bucket as bucket,
    bucket_by_sequence_length as bucket_by_sequence_length,
)
from weft_io.input.pipeline import (
    input_producer as input_producer,
    limit_epochs as limit_epochs,
    match_filenames_once as match_filenames_once,
    range_input_producer as range_input_producer,
    slice_input_producer as slice_input_producer,
    string_input_producer as string_input_producer,
)
from weft_io.saving.saver import Saver as Saver
from weft_io.saving.warm_start import (
    init_from_checkpoint as init_from_checkpoint,
)
from weft_io.summary.reading import (
    summary_iterator as summary_iterator,
)
from weft_io.training.hook_timers import (
    SecondOrStepTimer as SecondOrStepTimer,
)

NewCheckpointReader = _reader.CheckpointReader

if _typing.TYPE_CHECKING:
    from weft_graph.proto import (
        BytesList as BytesList,
        ClusterDef as ClusterDef,
        Example as Example,
        Feature as Feature,
        FeatureList as FeatureList,
        FeatureLists as FeatureLists,
        Features as Features,
        FloatList as FloatList,
        Int64List as Int64List,
        JobDef as JobDef,
        SaverDef as SaverDef,
        SequenceExample as SequenceExample,
        ServerDef as ServerDef,
    )
    from weft_io.training import (
        CheckpointSaverHook as CheckpointSaverHook,
        CheckpointSaverListener as CheckpointSaverListener,
        ChiefSessionCreator as ChiefSessionCreator,
        FeedFnHook as FeedFnHook,
        FinalOpsHook as FinalOpsHook,
        GlobalStepWaiterHook as GlobalStepWaiterHook,
        LoggingTensorHook as LoggingTensorHook,
        MonitoredSession as MonitoredSession,
        MonitoredTrainingSession as MonitoredTrainingSession,
        NanLossDuringTrainingError as NanLossDuringTrainingError,
        NanTensorHook as NanTensorHook,
        Scaffold as Scaffold,
        SessionCreator as SessionCreator,
        SessionManager as SessionManager,
        SessionRunArgs as SessionRunArgs,
        SessionRunContext as SessionRunContext,
        SessionRunHook as SessionRunHook,
        SessionRunValues as SessionRunValues,
        SingularMonitoredSession as SingularMonitoredSession,
        StepCounterHook as StepCounterHook,
        StopAtStepHook as StopAtStepHook,
        SummarySaverHook as SummarySaverHook,
        Supervisor as Supervisor,
        WorkerSessionCreator as WorkerSessionCreator,
        basic_train_loop as basic_train_loop,
    )
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(
        __name__,
        names={
            "weft_graph.proto": [
                "BytesList",
                "ClusterDef",
                "Example",
                "Feature",
                "FeatureList",
                "FeatureLists",
                "Features",
                "FloatList",
                "Int64List",
                "JobDef",
                "SaverDef",
                "SequenceExample",
                "ServerDef",
            ],
            "weft_io.training": [
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
            ],
        },
    )
