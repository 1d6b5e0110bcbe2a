package org.weftml.lite;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * Runs a {@code .weftlite} model. An interpreter may be used by one thread at a time; several of them may share the
 * buffer of a model.
 *
 * <pre>
 * try (Interpreter interpreter = new Interpreter(Interpreter.read(assets.open("model.weftlite")), 2)) {
 *   interpreter.input("images").set(pixels);
 *   interpreter.invoke();
 *   float[] scores = interpreter.output("scores").floats();
 * }
 * </pre>
 */
public final class Interpreter implements AutoCloseable {
  private static final int ALIGNMENT = 64;
  private static final int MAX_RANK = 8;
  private static final int EXCHANGE_BYTES = 512;

  private final ByteBuffer exchange = direct(EXCHANGE_BYTES);
  private final ByteBuffer model; // the runtime reads these two until the interpreter is closed
  private final ByteBuffer memory;
  private final Tensor[] inputs;
  private final Tensor[] outputs;
  private long handle;
  private long pool;

  /**
   * Open a model on the calling thread only.
   *
   * @throws LiteException the model is damaged, or needs a kernel that this build lacks
   */
  public Interpreter(ByteBuffer model) {
    this(model, 1);
  }

  /**
   * Open a model.
   *
   * @param model the bytes of a file; they are copied unless the buffer is direct and aligned to 64 bytes
   * @param threads the number of threads that share the work, the caller's among them
   * @throws LiteException the model is damaged, or needs a kernel that this build lacks
   */
  public Interpreter(ByteBuffer model, int threads) {
    if (threads < 1 || threads > 64)
      throw new LiteException(3, "threads must be 1 to 64, got " + threads);
    this.model = aligned(model);
    int size = this.model.remaining();
    pool = threads > 1 ? Native.createPool(threads) : 0;
    try {
      long bytes = Native.query(this.model, size, threads, pool, exchange);
      if (bytes == 0) throw error();
      if (bytes > Integer.MAX_VALUE - ALIGNMENT)
        throw new LiteException(8, "the model needs " + bytes + " bytes of memory");
      memory = direct((int) bytes + ALIGNMENT);
      handle = Native.open(this.model, size, memory, bytes, threads, pool, exchange);
      if (handle == 0) throw error();
    } catch (RuntimeException | Error problem) {
      close();
      throw problem;
    }
    inputs = tensors(false);
    outputs = tensors(true);
  }

  /** Read all bytes of a stream, such as an asset, into a buffer for {@link #Interpreter(ByteBuffer)}. */
  public static ByteBuffer read(InputStream stream) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    byte[] part = new byte[1 << 16];
    for (int count; (count = stream.read(part)) >= 0; ) bytes.write(part, 0, count);
    return aligned(ByteBuffer.wrap(bytes.toByteArray()));
  }

  public int inputCount() {
    return inputs.length;
  }

  public int outputCount() {
    return outputs.length;
  }

  public Tensor input(int index) {
    return inputs[index];
  }

  public Tensor output(int index) {
    return outputs[index];
  }

  /** An input by its name in the signature. */
  public Tensor input(String name) {
    return find(inputs, name);
  }

  /** An output by its name in the signature. */
  public Tensor output(String name) {
    return find(outputs, name);
  }

  /** Give an input another shape, within its bound. Views of tensors must be taken anew. */
  public void resize(Tensor input, int... shape) {
    if (shape.length > MAX_RANK) throw new LiteException(3, "a shape has at most 8 sizes");
    exchange.clear();
    for (int i = 0; i < MAX_RANK; i++) exchange.putInt(4 * i, i < shape.length ? shape[i] : 0);
    check(Native.resize(handle(), input.number(), shape.length, exchange));
  }

  /** Compute the outputs from the inputs. */
  public void invoke() {
    check(Native.invoke(handle(), exchange));
  }

  /** Give all variables of the model their initial values. */
  public void resetVariables() {
    Native.resetVariables(handle());
  }

  /** A checkpoint of the variables, which has a checksum. */
  public byte[] saveVariables() {
    byte[] result = new byte[(int) Native.checkpointBytes(handle())];
    ByteBuffer buffer = direct(result.length);
    check(Native.saveCheckpoint(handle(), buffer, result.length, exchange));
    buffer.get(result);
    return result;
  }

  /** Set all variables to the values of a checkpoint. A damaged checkpoint changes nothing. */
  public void restoreVariables(byte[] checkpoint) {
    ByteBuffer buffer = direct(checkpoint.length);
    buffer.put(checkpoint);
    check(Native.restoreCheckpoint(handle(), buffer, checkpoint.length, exchange));
  }

  /** Stop the threads. The interpreter and views of its tensors cannot be used afterwards. */
  @Override
  public void close() {
    handle = 0;
    if (pool != 0) Native.destroyPool(pool);
    pool = 0;
  }

  long handle() {
    if (handle == 0) throw new LiteException(9, "the interpreter is closed");
    return handle;
  }

  /** The code of the type, the sizes, and the declared sizes. */
  int[] shape(int tensor) {
    int form = Native.shape(handle(), tensor, exchange);
    int rank = form & 255;
    int[] result = new int[1 + 2 * rank];
    result[0] = form >> 8;
    for (int i = 0; i < rank; i++) {
      result[1 + i] = exchange.getInt(4 * i);
      result[1 + rank + i] = exchange.getInt(4 * (MAX_RANK + i));
    }
    return result;
  }

  private Tensor[] tensors(boolean areOutputs) {
    Tensor[] result = new Tensor[Native.count(handle(), areOutputs)];
    for (int i = 0; i < result.length; i++) {
      int number = Native.tensor(handle(), areOutputs, i);
      int length = Native.name(handle(), areOutputs, number, exchange, EXCHANGE_BYTES);
      result[i] = new Tensor(this, number, text(0, Math.min(length, EXCHANGE_BYTES)));
    }
    return result;
  }

  private static Tensor find(Tensor[] tensors, String name) {
    StringBuilder names = new StringBuilder();
    for (Tensor tensor : tensors) {
      if (tensor.name().equals(name)) return tensor;
      names.append(names.length() == 0 ? "" : ", ").append(tensor.name());
    }
    throw new LiteException(3, "no tensor " + name + "; the model has " + names);
  }

  private void check(int status) {
    if (status != 0) throw error();
  }

  private LiteException error() {
    int length = 0;
    while (4 + length < EXCHANGE_BYTES && exchange.get(4 + length) != 0) length++;
    return new LiteException(exchange.getInt(0), text(4, length));
  }

  private String text(int start, int length) {
    byte[] bytes = new byte[length];
    for (int i = 0; i < length; i++) bytes[i] = exchange.get(start + i);
    return new String(bytes, StandardCharsets.UTF_8);
  }

  private static ByteBuffer direct(int bytes) {
    return ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
  }

  private static ByteBuffer aligned(ByteBuffer buffer) {
    ByteBuffer from = buffer.slice();
    if (from.isDirect() && Native.misalignment(from) == 0) return from;
    ByteBuffer to = direct(from.remaining() + ALIGNMENT);
    int misalignment = Native.misalignment(to);
    int start = misalignment == 0 ? 0 : ALIGNMENT - misalignment;
    to.position(start);
    to.limit(start + from.remaining());
    ByteBuffer result = to.slice();
    result.put(from);
    result.clear();
    return result;
  }
}
