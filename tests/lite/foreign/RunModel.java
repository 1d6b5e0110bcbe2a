import java.io.FileInputStream;
import java.nio.ByteBuffer;
import org.weftml.lite.DataType;
import org.weftml.lite.Interpreter;
import org.weftml.lite.LiteException;
import org.weftml.lite.Tensor;

/** Runs a model with the API of the Android archive: java RunModel MODEL. Prints the results, and what it refuses. */
public final class RunModel {
  private static void refuse(String what, Runnable action) {
    try {
      action.run();
    } catch (LiteException error) {
      System.out.println(what + ": " + error.status() + " " + error.getMessage());
      return;
    }
    throw new AssertionError(what + " is not refused");
  }

  private static void run(ByteBuffer model, int threads) {
    try (Interpreter interpreter = new Interpreter(model, threads)) {
      Tensor x = interpreter.input("x");
      interpreter.resize(x, 2, 6, 6, 3);
      float[] values = new float[216];
      for (int i = 0; i < values.length; i++) values[i] = i % 7 - 3;
      x.set(values);
      interpreter.invoke();
      StringBuilder line = new StringBuilder("y");
      for (float value : interpreter.output("y").floats()) line.append(' ').append(Float.floatToRawIntBits(value));
      System.out.println(line);
    }
  }

  public static void main(String[] names) throws Exception {
    ByteBuffer model;
    try (FileInputStream stream = new FileInputStream(names[0])) {
      model = Interpreter.read(stream);
    }
    run(model, 1);
    run(model, 2);

    Interpreter interpreter = new Interpreter(model);
    Tensor x = interpreter.input(0);
    if (interpreter.inputCount() != 1 || interpreter.outputCount() != 1) throw new AssertionError("counts");
    if (x.type() != DataType.FLOAT32 || x.declaredShape()[0] != -1) throw new AssertionError("declared shape");
    if (!interpreter.output(0).name().equals("y")) throw new AssertionError("name");
    interpreter.restoreVariables(interpreter.saveVariables());
    interpreter.resetVariables();
    refuse("size", () -> x.set(new float[3]));
    refuse("type", () -> x.set(new byte[3]));
    refuse("bound", () -> interpreter.resize(x, 99, 6, 6, 3));
    refuse("rank", () -> interpreter.resize(x, 1));
    refuse("name", () -> interpreter.input("z"));
    refuse("threads", () -> new Interpreter(model, 0));
    refuse("file", () -> new Interpreter(ByteBuffer.wrap(new byte[100])));
    refuse("checkpoint", () -> interpreter.restoreVariables(new byte[10]));
    interpreter.close();
    interpreter.close();
    refuse("closed", interpreter::invoke);
  }
}
