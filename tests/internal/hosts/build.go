package hosts

import (
	"fmt"
	"os"
	"os/exec"
)

// Build builds a main package as a file. Go's cache keeps programs that are run, so several tests link one only once.
func Build(file, pkg string, env ...string) error {
	cmd := exec.Command("go", "run", "-exec=cp --", pkg, file)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}
