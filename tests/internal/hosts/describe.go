package hosts

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Describe says when and on what something was measured. It does not identify the machine.
func Describe(now time.Time) string {
	return fmt.Sprintf("%s. %d processors, %s, Linux %s, Go %s.", now.Format("2 January 2006"), runtime.NumCPU(), Processor(), Kernel(), strings.TrimPrefix(runtime.Version(), "go"))
}

// Processor names the model of this machine's processors.
func Processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // other systems than Linux have none
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

var versionForm = regexp.MustCompile(`^\d+[0-9.]*`)

// Kernel is the version of Linux that runs, without what its builder calls it.
func Kernel() string {
	release, _ := Sysctl("kernel/osrelease")
	return versionForm.FindString(release)
}
