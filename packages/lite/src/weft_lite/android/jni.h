/* The part of the Java Native Interface that weft_lite_jni.c uses, for builds without the headers of a JDK. The
 * table of functions has these two at the positions 229 and 230, as the specification of JNI says. */
#ifndef WEFT_LITE_JNI_H
#define WEFT_LITE_JNI_H

#include <stdint.h>

#define JNIEXPORT __attribute__((visibility("default")))
#define JNICALL

typedef int32_t jint;
typedef int64_t jlong;
typedef uint8_t jboolean;
typedef void *jobject;
typedef void *jclass;

typedef const struct JNINativeInterface *JNIEnv;

struct JNINativeInterface {
  void *others[229];
  jobject (*NewDirectByteBuffer)(JNIEnv *, void *address, jlong capacity);
  void *(*GetDirectBufferAddress)(JNIEnv *, jobject buffer);
};

#endif
