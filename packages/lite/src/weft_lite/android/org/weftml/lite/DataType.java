package org.weftml.lite;

/** The element type of a tensor. */
public enum DataType {
  FLOAT32(1, 4),
  INT32(3, 4),
  UINT8(4, 1),
  INT16(5, 2),
  INT8(6, 1),
  INT64(9, 8),
  BOOL(10, 1),
  FLOAT16(19, 2);

  private final int code;
  private final int bytes;

  DataType(int code, int bytes) {
    this.code = code;
    this.bytes = bytes;
  }

  /** Bytes of an element. */
  public int bytes() {
    return bytes;
  }

  static DataType of(int code) {
    for (DataType type : values()) {
      if (type.code == code) return type;
    }
    throw new LiteException(12, "element type " + code + " is unknown");
  }
}
