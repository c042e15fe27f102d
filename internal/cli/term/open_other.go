//go:build !windows

package term

import (
	"os"
)

// open opens the controlling terminal. It fails if there is none.
func open() (in, out *os.File, err error) {
	in, err = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	return in, in, err
}
