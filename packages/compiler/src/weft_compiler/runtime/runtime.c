/* The runtime in one file, which `hatch run golden:runtime` compiles to LLVM IR. */
#include "loops.c"
#include "arena.c"
#include "entry.c"
#include "sequence.c"
#include "readings.c"
