package org.weftml.lite;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** An input or output of an {@link Interpreter}. */
public final class Tensor {
  private final Interpreter interpreter;
  private final int number;
  private final String name;

  Tensor(Interpreter interpreter, int number, String name) {
    this.interpreter = interpreter;
    this.number = number;
    this.name = name;
  }

  /** The name in the model's signature. */
  public String name() {
    return name;
  }

  public DataType type() {
    return DataType.of(interpreter.shape(number)[0]);
  }

  /** The current sizes, outermost first. */
  public int[] shape() {
    return sizes(0);
  }

  /** The sizes that the model declares; -1 for a size that {@link Interpreter#resize} can change. */
  public int[] declaredShape() {
    return sizes(1);
  }

  private int[] sizes(int part) {
    int[] all = interpreter.shape(number);
    int rank = (all.length - 1) / 2;
    int[] result = new int[rank];
    System.arraycopy(all, 1 + part * rank, result, 0, rank);
    return result;
  }

  /**
   * A view of the elements in native byte order, without a copy. It is valid until the interpreter is closed or an
   * input is resized.
   */
  public ByteBuffer buffer() {
    return Native.data(interpreter.handle(), number).order(ByteOrder.nativeOrder());
  }

  /** Copy values into a tensor of type FLOAT32. */
  public void set(float[] values) {
    buffer(DataType.FLOAT32, values.length).asFloatBuffer().put(values);
  }

  /** Copy values into a tensor of a type of one byte. */
  public void set(byte[] values) {
    ByteBuffer to = buffer();
    if (to.remaining() != values.length) throw wrongSize(to.remaining(), values.length, "bytes");
    to.put(values);
  }

  /** A copy of the values of a tensor of type FLOAT32. */
  public float[] floats() {
    ByteBuffer from = buffer();
    float[] result = new float[from.remaining() / 4];
    buffer(DataType.FLOAT32, result.length).asFloatBuffer().get(result);
    return result;
  }

  /** A copy of the bytes. */
  public byte[] bytes() {
    ByteBuffer from = buffer();
    byte[] result = new byte[from.remaining()];
    from.get(result);
    return result;
  }

  int number() {
    return number;
  }

  private ByteBuffer buffer(DataType required, int count) {
    ByteBuffer result = buffer();
    if (type() != required)
      throw new LiteException(3, "tensor " + name + " has type " + type() + ", not " + required);
    if (result.remaining() != count * required.bytes())
      throw wrongSize(result.remaining() / required.bytes(), count, "elements");
    return result;
  }

  private LiteException wrongSize(int wanted, int received, String unit) {
    return new LiteException(3, "tensor " + name + " has " + wanted + " " + unit + ", got " + received);
  }
}
