// Package backup contains the commands about backups, and the one that shows past transfers.
package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/config"
	"github.com/fxfer/fxfer/internal/units"
)

// jobsName is the name of the file of jobs in fxfer's folder.
const jobsName = "backup.yaml"

// exitAlarm is the exit code of status when a job needs attention.
const exitAlarm = 9

// New returns the commands about backups.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "backup",
		Short: "Make backups by schedule, and restore them",
		Long: `Backup runs the jobs that a file describes: what to send, where to, when, how
fast, and which snapshots to keep. A job whose source is a URL gets files from a
server into a folder of this host. The file is backup.yaml in FXFER_HOME, or the
one that --file names. For example:

  jobs:
    - name: home
      schedule: 30 2 * * *
      sources: [/home]
      destination: fxfer://nas/backup/home
      keep: {daily: 7, weekly: 4, monthly: 12}
      max-age: 26h

docs/backups.md explains all keys. "fxfer backup daemon" runs the jobs when they
are due. "fxfer backup install" makes systemd run them.`,
		Args: cobra.NoArgs,
	}
	file := os.Getenv("FXFER_BACKUP")
	option.Add(c.PersistentFlags(), &file, "file", "file", file, "file of jobs; without it FXFER_BACKUP, or backup.yaml in FXFER_HOME", option.ParseFile)
	c.AddCommand(newRun(&file), newList(&file), newStatus(&file), newDaemon(&file),
		newRestore(&file), newSnapshots(&file), newVerify(&file), newPrune(&file),
		newCheck(&file), newInstall(&file))
	return c
}

// site holds the jobs of this host and what the store knows about them.
type site struct {
	home   string
	config *backup.Config
	store  *backup.Store

	standardCrypto bool
}

// openSite reads the file of jobs.
func openSite(file string) (*site, error) {
	home, err := homeOf("")
	if err != nil {
		return nil, err
	}
	return openSiteIn(home, file)
}

// openSiteIn is openSite for the user with this folder.
func openSiteIn(home, file string) (*site, error) {
	standard, err := option.CryptoInEnvironment()
	if err != nil {
		return nil, err
	}
	if file == "" {
		file = filepath.Join(home, jobsName)
	}
	jobs, err := backup.Load(file)
	var problems config.Faults
	switch {
	case errors.As(err, &problems):
		return nil, exit.Usage("`fxfer backup check` lists all faults; docs/backups.md explains all keys", "%w", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, exit.Usage("`fxfer backup --help` shows an example; --file names another file", "there are no backup jobs yet: %s does not exist", file)
	case err != nil:
		return nil, exit.Usage("--file names another", "read the jobs: %w", err)
	}
	return &site{home: home, config: jobs, store: backup.OpenStore(home), standardCrypto: standard}, nil
}

// jobs returns the jobs with these names, or all jobs if there are no names.
func (s *site) jobs(names []string) ([]*backup.Job, error) {
	if len(names) == 0 {
		return s.config.Jobs, nil
	}
	var jobs []*backup.Job
	for _, name := range names {
		j := s.config.Job(name)
		if j == nil {
			return nil, exit.Usage("there are: "+strings.Join(s.names(), ", "), "there is no job %q in %s", name, s.config.Path)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func (s *site) names() (names []string) {
	for _, j := range s.config.Jobs {
		names = append(names, j.Name)
	}
	return names
}

func (s *site) client() *backup.Client {
	return &backup.Client{Home: s.home, StandardCrypto: s.standardCrypto}
}

func (s *site) runner(log *slog.Logger) *backup.Runner {
	return &backup.Runner{Store: s.store, Transferrer: s.client(), Clock: backup.SystemClock{}, Log: log}
}

// needJob returns an error unless the arguments are the name of one job.
func needJob(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.Usage("usage: "+c.UseLine(), "which job?")
	}
	return option.NoEmpty(args)
}

func newCheck(file *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the file of jobs",
		Long: `Check reads the file of jobs and lists all faults with their lines. It warns of
sources that are not there, unless a "pre" hook may make them.`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			var problems config.Faults
			if errors.As(err, &problems) {
				for _, p := range problems {
					fmt.Fprintln(c.OutOrStdout(), term.OneLine(p.Error()))
				}
				return exit.Usage("docs/backups.md has all keys", "%s in the file of jobs", units.Count(int64(len(problems)), "fault", "faults"))
			}
			if err != nil {
				return err
			}
			for _, j := range s.config.Jobs {
				for _, source := range j.Absent() {
					fmt.Fprintf(c.ErrOrStderr(), "fxfer: warning: %s: the source %s is not there\n", j.Name, term.OneLine(source))
				}
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %s, no faults\n", term.OneLine(s.config.Path), units.Count(int64(len(s.config.Jobs)), "job", "jobs"))
			return nil
		},
	}
}

func newList(file *string) *cobra.Command {
	return &cobra.Command{
		Use:        "list",
		Short:      "List the jobs",
		SuggestFor: []string{"ls", "jobs"},
		Args:       option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := openSite(*file)
			if err != nil {
				return err
			}
			rows := [][]string{{"job", "schedule", "mode", "window", "destination"}}
			for _, j := range s.config.Jobs {
				schedule := "by hand"
				if j.Schedule != nil {
					schedule = j.Schedule.String()
					if j.Zone != time.Local {
						schedule += " " + j.Zone.String()
					}
				}
				rows = append(rows, []string{j.Name, schedule, string(j.Mode), j.Window.String(), j.Target()})
			}
			term.Records(c.OutOrStdout(), rows, 2)
			return nil
		},
	}
}
