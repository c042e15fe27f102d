package backup

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fxfer/fxfer/internal/backup"
	"github.com/fxfer/fxfer/internal/cli/chart"
	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// NewHistory returns the command that shows past transfers.
func NewHistory() *cobra.Command {
	var job, page string
	var since time.Time
	var asJSON, asCSV, plot, tunes bool
	c := &cobra.Command{
		Use:   "history",
		Short: "Show past transfers and backups",
		Long: `History lists past transfers and backup runs, oldest first: the bytes written at
the target, the bytes sent over the network, the goodput, the limiter, and the
cause of a failure. --json names up to 5 entries that failed in each.

--tunes lists the experiments of "fxfer tune" instead: the best setting at each
server, and how the goodput of the defaults changed since the experiment before.`,
		Example: `  fxfer history --since 7d
  fxfer history --job home --plot
  fxfer history --job home --html home.html
  fxfer history --tunes --since 90d`,
		SuggestFor: []string{"log", "transfers"},
		Args:       option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if asJSON && asCSV || plot && (asJSON || asCSV) {
				return exit.Usage("choose one", "--json, --csv and --plot exclude each other")
			}
			if tunes && (job != "" || page != "" || asCSV || plot) {
				return exit.Usage("`fxfer tune --html` writes a page of an experiment", "--tunes excludes --job, --plot, --csv and --html")
			}
			home, err := identity.Home()
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			if since.IsZero() {
				since = time.Now().AddDate(0, 0, -30)
			}
			if tunes {
				return showTunes(c.OutOrStdout(), home, since, asJSON)
			}
			records, err := backup.OpenStore(home).History(job, since)
			if err != nil {
				return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
			}
			if page != "" {
				if err := createHistoryPage(page, job, since, records); err != nil {
					return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
				}
			}
			switch out := c.OutOrStdout(); {
			case asJSON:
				for i := range records {
					term.JSON(out, struct {
						Type string `json:"type"`
						*backup.Record
					}{"transfer", &records[i]})
				}
			case asCSV:
				return writeHistoryCSV(out, records)
			case plot && len(records) > 1:
				plotHistory(out, records)
			case page == "" || plot:
				printHistory(out, job, since, records)
			}
			return nil
		},
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&job, "job", "", "show only runs of this backup `job`")
	option.Add(flags, &since, "since", "time", "30d", "show what began since then: 2026-11-21, or 7d for 7 days", func(s string) (time.Time, error) { return option.ParseNewer(s, time.Now()) })
	flags.BoolVar(&tunes, "tunes", false, "show experiments of fxfer tune instead")
	flags.BoolVar(&plot, "plot", false, "draw duration, goodput and size")
	flags.BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	flags.BoolVar(&asCSV, "csv", false, "print CSV on standard output")
	option.Add(flags, &page, "html", "file", "", "write a page with plots to a file", option.ParseOutput)
	return c
}

func historyRow(r *backup.Record) []string {
	return []string{
		r.Started.Local().Format("2006-01-02 15:04:05"), historyName(r), outcomeText(r), units.Bytes(r.Bytes), units.Bytes(r.Written), units.Bytes(r.Sent),
		units.Time(r.Duration()), units.Rate(r.Goodput), term.OneLine(r.Limiter), term.OneLine(r.Cause()),
	}
}

var historyHeads = []string{"began", "what", "outcome", "size", "written", "sent", "time", "goodput", "limit", "cause"}

func historyName(r *backup.Record) string {
	if r.Job != "" {
		return r.Job
	}
	return r.Verb + " " + term.OneLine(r.Target)
}

func printHistory(w io.Writer, job string, since time.Time, records []backup.Record) {
	if len(records) == 0 {
		what := "no transfer"
		if job != "" {
			what = fmt.Sprintf("no run of job %q", job)
		}
		fmt.Fprintf(w, "%s began since %s\n", what, since.Local().Format("2006-01-02 15:04"))
		return
	}
	rows := [][]string{historyHeads}
	for i := range records {
		rows = append(rows, historyRow(&records[i]))
	}
	term.Records(w, rows, 3)
}

func writeHistoryCSV(w io.Writer, records []backup.Record) error {
	out := csv.NewWriter(w)
	rows := [][]string{{
		"job", "verb", "target", "snapshot", "due", "started", "ended", "working_seconds", "outcome", "attempts", "pauses", "files", "entries_failed", "bytes",
		"bytes_read", "bytes_written", "bytes_sent", "goodput_bits_per_second", "peak_bits_per_second", "limiter", "digest", "error", "cause",
	}}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	fraction := func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
	for i := range records {
		r := &records[i]
		due := ""
		if !r.Due.IsZero() {
			due = r.Due.Format(time.RFC3339)
		}
		rows = append(rows, []string{
			r.Job, r.Verb, r.Target, r.Snapshot, due, r.Started.Format(time.RFC3339), r.Ended.Format(time.RFC3339), fraction(r.Working), string(r.Outcome),
			strconv.Itoa(r.Attempts), strconv.Itoa(r.Pauses), number(r.Files), number(r.Failures), number(r.Bytes), number(r.Read), number(r.Written), number(r.Sent),
			fraction(r.Goodput), fraction(r.Peak), r.Limiter, r.Digest, r.Error, r.Cause(),
		})
	}
	return out.WriteAll(rows)
}

// historyValues are what the charts of the history show.
var historyValues = []struct {
	name  string
	value func(*backup.Record) float64
	unit  chart.Unit
}{
	{"duration", func(r *backup.Record) float64 { return r.Working }, chart.Seconds},
	{"goodput", func(r *backup.Record) float64 { return r.Goodput }, chart.Rate},
	{"written", func(r *backup.Record) float64 { return float64(r.Written) }, chart.Bytes},
	{"size", func(r *backup.Record) float64 { return float64(r.Bytes) }, chart.Bytes},
}

// plotHistory draws one plot per value of the records on a terminal, in their order. There is at
// least one record.
func plotHistory(w io.Writer, records []backup.Record) {
	for _, p := range historyValues {
		chart.Plot(w, p.name, records, p.value, p.unit)
	}
	form := time.DateOnly
	if records[len(records)-1].Started.Sub(records[0].Started) < 48*time.Hour {
		form = "2006-01-02 15:04"
	}
	first, last := records[0].Started.Local().Format(form), records[len(records)-1].Started.Local().Format(form)
	chart.Axis(w, "")
	fmt.Fprintf(w, "%14s%s%*s\n", "", first, chart.Width-len(first), last)
}

// createHistoryPage writes the history as an HTML page to the file called name.
func createHistoryPage(name, job string, since time.Time, records []backup.Record) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeHistoryPage(f, job, since, time.Now(), records), f.Close())
}
