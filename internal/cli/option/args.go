package option

import (
	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// urlForm is the hint against an error in a URL.
const urlForm = "a URL looks like this: fxfer://nas/backup/photos, or with a port: fxfer://nas:7433/backup"

// ParseURL reads a URL. With needShare it has to name a share; otherwise the server is enough.
func ParseURL(s string, needShare bool) (fxfer.URL, error) {
	u, err := fxfer.ParseURL(s)
	switch {
	case err != nil:
		return u, exit.Usage(urlForm, "%w", err)
	case needShare && u.Share == "":
		return u, exit.Usage("`fxfer ls "+u.Redacted()+"` lists the shares", "%s names no share: expected fxfer://host/share", u.Redacted())
	}
	return u, nil
}

// CheckPin returns an error if --pin and the invitation name different keys.
func CheckPin(pin string, u fxfer.URL) error {
	if u.Token != "" && pin != "" && pin != string(u.Pin) {
		return exit.Usage("leave --pin out, or ask for a new invitation", "the invitation is for another key than --pin")
	}
	return nil
}

// Exactly returns a check that a command has exactly n arguments.
func Exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < n:
			return exit.Usage("usage: "+c.UseLine(), "an argument is missing")
		case len(args) > n:
			return exit.Usage("usage: "+c.UseLine(), "%q is one argument too many", args[n])
		}
		return nil
	}
}

// NoEmpty rejects empty arguments: they come from mistakes in scripts.
func NoEmpty(args []string) error {
	for i, arg := range args {
		if arg == "" {
			return exit.Usage("", "argument %d is empty", i+1)
		}
	}
	return nil
}
