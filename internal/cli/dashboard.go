package cli

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/serve"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/web"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newDashboard() *cobra.Command {
	addr := ""
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Print the URL of the dashboard",
		Long: `Dashboard prints the URL of the dashboard of the server that runs on this host
with --web and the same FXFER_HOME. The URL contains a token: whoever has it may
cancel transfers and revoke clients. To replace the token, remove the file
web-token in FXFER_HOME and restart the server.`,
		Example: "  sudo -u fxfer env FXFER_HOME=/var/lib/fxfer fxfer dashboard",
		Args:    option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := identity.Home()
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			if addr == "" {
				if addr, err = serve.Dashboard(home); err != nil {
					return err
				}
			}
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				return exit.Usage("start a server with --web, or name its port with --web", "no dashboard answers on %s", addr)
			}
			conn.Close()
			url, err := web.URL(home, addr)
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			fmt.Fprintln(c.OutOrStdout(), url)
			return nil
		},
	}
	option.Add(c.Flags(), &addr, "web", "port", "the server's", "port of the dashboard, or ADDRESS:PORT, as in --web of the server", web.ParseAddr)
	return c
}
