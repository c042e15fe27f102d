//go:build !windows

package cli

import "os"

// openTerminal opens the controlling terminal. It fails if there is none.
func openTerminal() (in, out *os.File, err error) {
	in, err = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	return in, in, err
}
