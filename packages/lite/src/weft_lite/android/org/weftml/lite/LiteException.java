package org.weftml.lite;

/** An error of the runtime. The message says what is wrong and where. */
public final class LiteException extends RuntimeException {
  private static final long serialVersionUID = 1;

  private final int status;

  LiteException(int status, String message) {
    super(message);
    this.status = status;
  }

  /** The canonical code, such as 3 for an invalid argument and 15 for a damaged file. */
  public int status() {
    return status;
  }
}
