package backup

import (
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

func newInstall(file *string) *cobra.Command {
	var timers bool
	var dir, name string
	c := &cobra.Command{
		Use:   "install",
		Short: "Write unit files for systemd",
		Long: `Install prints unit files for systemd: one service for all jobs, or one timer
for each job with --timers. With --dir it writes the files into that folder and
prints the next command. It starts and enables nothing.

With --user, these are the jobs of another account: fxfer runs as that user, with
the key, the history and, without --file, the backup.yaml in its home folder. To
use another folder, set FXFER_HOME; it has to belong to that user.`,
		Example: `  fxfer backup install
  sudo fxfer backup install --timers --dir /etc/systemd/system
  sudo fxfer backup install --user alice --dir /etc/systemd/system`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := homeOf(name)
			if err != nil {
				return err
			}
			s, err := openSiteIn(home, *file)
			if err != nil {
				return err
			}
			if timers && !slices.ContainsFunc(s.config.Jobs, func(j *backup.Job) bool { return j.Schedule != nil }) {
				return exit.Usage("`fxfer backup run JOB` starts it by hand", "no job has a schedule: a timer would never start one")
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			path, err := filepath.Abs(s.config.Path)
			if err != nil {
				return err
			}
			files := backup.Units(s.config, backup.UnitOptions{Program: exe, File: path, Home: s.home, User: name, Timers: timers})
			return writeUnits(c.OutOrStdout(), c.ErrOrStderr(), files, dir)
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.BoolVar(&timers, "timers", false, "one timer for each job instead of the daemon")
	option.Add(flags, &name, "user", "name", "", "run the jobs of this user, as this user instead of root", parseUser)
	option.Add(flags, &dir, "dir", "dir", "", "write the files into this folder, such as /etc/systemd/system", option.ParseFile)
	return c
}

func parseUser(s string) (string, error) {
	if s == "" || strings.ContainsAny(s, " \t\n=%") {
		return "", fmt.Errorf("%q is not the name of a user", s)
	}
	return s, nil
}

// homeOf returns fxfer's folder of a user. The name "" is the user of this process. For another user
// it makes no folder, because that would belong to the wrong one.
func homeOf(name string) (string, error) {
	own := func() (string, error) {
		home, err := identity.Home()
		if err != nil {
			return "", &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		return home, nil
	}
	if name == "" {
		return own()
	}
	account, err := user.Lookup(name)
	if err != nil {
		return "", exit.Usage("`getent passwd` lists the users", "--user: there is no user %q", name)
	}
	me, err := user.Current()
	if os.Getenv("FXFER_HOME") != "" || err == nil && me.Uid == account.Uid {
		return own()
	}
	return filepath.Join(account.HomeDir, ".config", "fxfer"), nil
}

func writeUnits(out, errs io.Writer, files []backup.Unit, dir string) error {
	var names []string
	for _, u := range files {
		if u.Start {
			names = append(names, u.Name)
		}
		if dir == "" {
			fmt.Fprintf(out, "# %s\n%s\n", u.Name, u.Text)
			continue
		}
		name := filepath.Join(dir, u.Name)
		if err := os.WriteFile(name, []byte(u.Text), 0o644); err != nil {
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		fmt.Fprintf(errs, "fxfer: wrote %s\n", term.OneLine(name))
	}
	if dir == "" {
		fmt.Fprintf(errs, "fxfer: these are the units; --dir writes them\n")
		return nil
	}
	fmt.Fprintf(errs, "fxfer: now: systemctl daemon-reload && systemctl enable --now %s\n", strings.Join(names, " "))
	return nil
}
