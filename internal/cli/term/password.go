package term

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// NewPassword asks twice for a new password if in is a terminal, without showing it. asked says
// whether it is one.
func NewPassword(in io.Reader, out io.Writer) (password string, asked bool, err error) {
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return "", false, nil
	}
	var typed [2]string
	for i, prompt := range []string{"New password: ", "Once more: "} {
		fmt.Fprint(out, prompt)
		text, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(out)
		if err != nil {
			return "", true, fmt.Errorf("read the password: %w", err)
		}
		typed[i] = string(text)
	}
	if typed[0] != typed[1] {
		return "", true, errors.New("the two passwords differ: nothing has changed")
	}
	return typed[0], true, nil
}
