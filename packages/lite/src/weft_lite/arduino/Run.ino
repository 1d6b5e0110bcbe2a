// Runs the model of this library once a second, and prints its first output. This sketch is for models with floats.
#include <WeftLite.h>

WeftLite model;

void setup() {
  Serial.begin(115200);
  if (!model.begin()) Serial.println(model.error());
}

void loop() {
  float *input = model.input<float>();
  for (size_t i = 0; i < model.inputBytes() / sizeof(float); i++) input[i] = 0.5f;
  if (!model.invoke()) {
    Serial.println(model.error());
    return;
  }
  const float *output = model.output<float>();
  for (size_t i = 0; i < model.outputBytes() / sizeof(float); i++) Serial.println(output[i], 6);
  delay(1000);
}
