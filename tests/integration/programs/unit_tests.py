"""Tests in the manner of tf.test.TestCase, run by unittest."""

# ruff: noqa: N802 - the names of tests are of their time

from __future__ import annotations

import io
import unittest
from types import ModuleType

import numpy as np


def program(tf: ModuleType) -> dict[str, np.ndarray]:
    class SquareTest(tf.test.TestCase):
        def setUp(self):
            super().setUp()
            self.data = np.arange(6, dtype=np.float32).reshape(2, 3)

        def testSquare(self):
            with self.test_session():
                x = tf.square([2, 3])
                self.assertAllEqual(x.eval(), [4, 9])

        def testClose(self):
            with self.cached_session() as sess:
                v = tf.Variable(self.data)
                sess.run(tf.global_variables_initializer())
                total = tf.reduce_sum(tf.exp(-v), 0)
                expected = np.exp(-self.data).sum(0)
                self.assertAllClose(expected, total.eval(), rtol=1e-5)
                self.assertAllCloseAccordingToType(expected, self.evaluate(total))
                self.assertNear(total.eval()[0], expected[0], 1e-5)
                self.assertNotAllClose(total.eval(), expected + 1)

        def testStructure(self):
            with self.session(graph=tf.Graph()) as sess:
                out = sess.run({"a": tf.constant(1.0), "b": [tf.ones([2]), tf.zeros([1])]})
                self.assertAllClose({"a": 1.0, "b": [[1, 1], [0]]}, out)
                self.assertShapeEqual(np.ones([2]), tf.ones([2]))

        def testOpError(self):
            with self.test_session():
                y = tf.check_numerics(tf.log(tf.constant([-1.0])), "negative")
                with self.assertRaisesOpError("negative"):
                    y.eval()
                with self.assertRaises(tf.errors.FailedPreconditionError):
                    tf.Variable(1.0).eval()
                with self.assertRaisesRegex(ValueError, "Dimensions|inner sizes|equal"):
                    tf.matmul(tf.ones([2, 3]), tf.ones([4, 5]))

        def testGradient(self):
            with self.test_session():
                x = tf.constant(self.data)
                y = tf.tanh(x) * tf.sin(x)
                error = tf.test.compute_gradient_error(x, [2, 3], y, [2, 3])
                self.assertLess(error, 1e-3)

        def testFreshGraph(self):
            self.assertEqual([], tf.global_variables())
            self.assertEqual("c:0", tf.constant(1, name="c").name)
            self.assertTrue(tf.test.get_temp_dir())

        def testThatFails(self):
            self.assertAllEqual([1, 2], [1, 3])

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(SquareTest)
    output = io.StringIO()
    result = unittest.TextTestRunner(stream=output, verbosity=2).run(suite)
    problems = [test.id().split(".")[-1] for test, _ in result.failures + result.errors]
    assert len(problems) == 1, output.getvalue()
    return {
        "failed": np.array(problems),
        "run": np.array(result.testsRun - len(result.skipped)),
    }
