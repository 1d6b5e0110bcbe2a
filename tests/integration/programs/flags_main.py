"""A script with flags and tf.app.run, which leaves by sys.exit."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    flags = tf.app.flags
    FLAGS = flags.FLAGS
    if "steps_of_main" not in FLAGS:  # flags are the process's
        flags.DEFINE_integer("steps_of_main", 5, "Number of steps to run trainer.")
        flags.DEFINE_float("rate_of_main", 0.1, "Initial learning rate.")
        flags.DEFINE_string("optimizer_of_main", "sgd", "Name of the optimizer.")
        flags.DEFINE_boolean("verbose_of_main", False, "Log the losses.")
        flags.DEFINE_enum("mode_of_main", "train", ["train", "eval"], "What to do.")
    results: dict[str, np.ndarray] = {}

    def run_training():
        graph = tf.Graph()
        with graph.as_default():
            a = tf.get_variable("a", initializer=[1.0, -2.0])
            loss = tf.reduce_sum(tf.square(a - [3.0, 0.5]))
            makers = {
                "sgd": tf.train.GradientDescentOptimizer,
                "momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.5),
            }
            train_op = makers[FLAGS.optimizer_of_main](FLAGS.rate_of_main).minimize(loss)
            init = tf.global_variables_initializer()
        with tf.Session(graph=graph) as sess:
            sess.run(init)
            losses = []
            for step in range(FLAGS.steps_of_main):
                _, value = sess.run([train_op, loss])
                losses.append(value)
                if FLAGS.verbose_of_main:
                    tf.logging.debug("step %d: %f", step, value)
            results["losses"] = np.array(losses)
            results["a"] = sess.run(a)

    def main(argv):
        results["rest"] = np.array(argv[1:])
        results["mode"] = np.array(FLAGS.mode_of_main)
        tf.logging.set_verbosity(tf.logging.INFO)
        run_training()
        return 3

    command = "train.py --steps_of_main=8 --rate_of_main 0.2 --optimizer_of_main=momentum"
    try:
        tf.app.run(main=main, argv=[*command.split(), "--verbose_of_main", "--unknown=1", "data"])
    except SystemExit as status:
        results["status"] = np.array(status.code)
    return results
