package serve

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// NewKey returns the command that prints the key of this machine.
func NewKey() *cobra.Command {
	return &cobra.Command{
		Use:     "key",
		Short:   "Print the key of this host",
		Long:    `Key prints the public key of this host, for "fxfer clients add" on a server.`,
		Example: `  fxfer key`,
		Args:    option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			store, err := openStore()
			if err != nil {
				return err
			}
			pin, err := pinOf(store)
			if err == nil {
				fmt.Fprintln(c.OutOrStdout(), pin)
			}
			return err
		},
	}
}

func pinOf(store *identity.Store) (identity.Pin, error) {
	key, err := store.Key()
	if err != nil {
		return "", &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
	}
	return identity.PinOfPrivate(key), nil
}
