package transfer

import (
	"os"
	"runtime"
	"runtime/debug"
)

// firstHeap is how large the heap gets before the first garbage collection, in MiB. 16 streams have
// buffers of 24 MiB. Until these are there, a heap that begins with 4 MiB would be collected three
// times, while the handshakes wait for the processor.
const firstHeap = 32

// collectLate puts off the first garbage collection until the heap has firstHeap. Then it goes on as
// usual. A setting of the user's stays.
func collectLate() {
	if os.Getenv("GOGC") != "" {
		return
	}
	const usual, usualHeap = 100, 4 // GOGC and the least heap with it, in MiB; see runtime/debug
	debug.SetGCPercent(usual * firstHeap / usualHeap)
	runtime.AddCleanup(new([64]byte), func(int) { debug.SetGCPercent(usual) }, 0)
}
