/* The compiled core of stallscope.profiler: kernels over columns, and the trace-event tokeniser.
 *
 * A library of plain C with nothing of Python in it: core.py calls it by ctypes, without the interpreter's lock, so
 * that one build serves every version of Python, and a fuzzer can drive it alone.
 *
 * Everything here has a Python twin with the same results (kernels_py.py, readers/event_fallback.py),
 * which the tests compare it with and which runs where no compiler was there. Inputs are untrusted:
 * every length is checked, every allocation can fail cleanly, nothing recurses.
 */
#include "_kernels.h"
#include "_tokeniser.h"

/* What core.py was given away and needs no more. */
void core_free(void *memory) { free(memory); }
