package org.weftml.lite;

import java.nio.ByteBuffer;

/** The functions of weft_lite_jni.c. */
final class Native {
  static {
    System.loadLibrary("weft_lite");
  }

  private Native() {}

  static native int misalignment(ByteBuffer buffer);

  static native long createPool(int threads);

  static native void destroyPool(long pool);

  static native long query(ByteBuffer file, int size, int tasks, long pool, ByteBuffer exchange);

  static native long open(
      ByteBuffer file, int size, ByteBuffer memory, long bytes, int tasks, long pool, ByteBuffer exchange);

  static native int count(long handle, boolean outputs);

  static native int tensor(long handle, boolean outputs, int i);

  static native int name(long handle, boolean outputs, int tensor, ByteBuffer exchange, int bytes);

  static native int shape(long handle, int tensor, ByteBuffer exchange);

  static native ByteBuffer data(long handle, int tensor);

  static native int resize(long handle, int tensor, int rank, ByteBuffer exchange);

  static native int invoke(long handle, ByteBuffer exchange);

  static native void resetVariables(long handle);

  static native long checkpointBytes(long handle);

  static native int saveCheckpoint(long handle, ByteBuffer buffer, int bytes, ByteBuffer exchange);

  static native int restoreCheckpoint(long handle, ByteBuffer buffer, int bytes, ByteBuffer exchange);
}
