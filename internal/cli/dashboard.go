package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newDashboard() *cobra.Command {
	addr := "127.0.0.1:" + web.DefaultPort
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Print the URL of the dashboard",
		Long: `Dashboard prints the URL of the dashboard of the server on this host that has
the same FXFER_HOME. The URL contains a token: whoever has it may cancel
transfers and revoke clients. To replace the token, remove the file web-token in
FXFER_HOME and restart the server.`,
		Example: "  sudo -u fxfer FXFER_HOME=/var/lib/fxfer fxfer dashboard",
		Args:    option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := identity.Home()
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			url, err := web.URL(home, addr)
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			fmt.Fprintln(c.OutOrStdout(), url)
			return nil
		},
	}
	option.Add(c.Flags(), &addr, "web", "port", web.DefaultPort, "port of the dashboard, or ADDRESS:PORT, as in --web of the server", web.ParseAddr)
	return c
}
