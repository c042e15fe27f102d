package path

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/cli/exit"
	"github.com/fxfer/fxfer/internal/cli/option"
	"github.com/fxfer/fxfer/internal/cli/term"
	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/internal/path/doctor"
	"github.com/fxfer/fxfer/internal/path/plan"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// defaultPath is the path for which doctor states gains unless --for names another.
const defaultPath = "1gbit,50ms"

// NewDoctor returns the commands that examine and tune this host.
func NewDoctor() *cobra.Command {
	path := new(plan.Path)
	var share string
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor [--for RATE,RTT] [--share DIR]",
		Short: "Find settings of this host that cost goodput",
		Long: `Doctor reads the settings of this host that matter to transfers over a long
path: buffers and other settings of the kernel, routes, interfaces, CPUs, limits,
the clock, and with --share the speed of a disk. It shows what costs goodput on the
path of --for, why, the command that fixes it, and the gain to expect, largest
first. It changes nothing; "fxfer doctor apply" does.

Gains count this host alone; the other host can be a limit, too. Doctor runs on
Linux.`,
		Example: `  fxfer doctor --for 10gbit,80ms --share /srv/backup
  sudo fxfer doctor apply --for 10gbit,80ms --dry-run`,
		SuggestionsMinimumDistance: 2,
		Args:                       cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return option.NeedSubcommand(c, args)
			}
			return examine(c, *path, share, asJSON)
		},
	}
	c.Flags().SortFlags = false
	addFor(c.Flags(), path)
	option.Add(c.Flags(), &share, "share", "dir", "", "measure the disk of this folder: 256 MiB, 3 s at most", option.ParseFile)
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON lines on standard output")
	c.AddCommand(newDoctorApplyCommand(), newDoctorUndoCommand())
	return c
}

func newDoctorApplyCommand() *cobra.Command {
	path := new(plan.Path)
	var dryRun, yes bool
	c := &cobra.Command{
		Use:   "apply [--for RATE,RTT] [--dry-run] [--yes]",
		Short: "Apply the proposed changes, so that they can be undone",
		Long: `Apply makes the changes that "fxfer doctor" proposes: it writes
` + doctor.ConfFile + `, sets the running values, and changes the
initial windows of routes to far hosts. Where systemd-networkd or NetworkManager
sets such a route, apply writes a file for that program, so that the change lasts.
It shows all changes first, and asks. The old values are saved in FXFER_HOME;
"fxfer doctor undo" restores them.`,
		Example: `  sudo fxfer doctor apply --for 1gbit,50ms`,
		Args:    option.Exactly(0),
		RunE:    func(c *cobra.Command, _ []string) error { return doctorApply(c, *path, dryRun, yes) },
	}
	c.Flags().SortFlags = false
	addFor(c.Flags(), path)
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "show what would change, and change nothing")
	c.Flags().BoolVar(&yes, "yes", false, "don't ask")
	return c
}

func newDoctorUndoCommand() *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "undo [--dry-run]",
		Short: "Undo the changes of \"doctor apply\"",
		Long: `Undo restores every value, route and file that "fxfer doctor apply" changed.
Values that somebody has changed since stay as they are, and undo lists them.
Undo also works after an apply or undo that was interrupted.`,
		Args: option.Exactly(0),
		RunE: func(c *cobra.Command, _ []string) error { return doctorUndo(c, dryRun) },
	}
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "show what would change, and change nothing")
	return c
}

func addFor(flags *pflag.FlagSet, path *plan.Path) {
	*path, _ = parsePathFor(defaultPath)
	option.Add(flags, path, "for", "rate,rtt", defaultPath, "the path to examine this host for", parsePathFor)
}

// parsePathFor reads a rate and a round-trip time, separated by a comma.
func parsePathFor(s string) (plan.Path, error) {
	rateText, rttText, ok := strings.Cut(s, ",")
	if !ok {
		return plan.Path{}, fmt.Errorf("%q is not a rate and a round-trip time such as %s", s, defaultPath)
	}
	rate, err := units.ParseRate(rateText)
	if err != nil {
		return plan.Path{}, err
	}
	rtt, err := units.ParseTime(rttText)
	if err != nil || rtt < time.Microsecond || rtt > time.Minute {
		return plan.Path{}, fmt.Errorf("%q is not a round-trip time such as 50ms", rttText)
	}
	return plan.Path{Rate: float64(rate), RTT: rtt, MTU: 1500}, nil
}

func examine(c *cobra.Command, path plan.Path, share string, asJSON bool) error {
	host, err := doctor.Read()
	if err != nil {
		return err
	}
	if share != "" {
		ctx, stop := exit.Interruptible(c.Context())
		defer stop()
		info, err := os.Stat(share)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is not a folder", share)
		}
		if err != nil {
			return &fxfer.Error{Kind: fxfer.KindLocalDisk, Err: err}
		}
		host.Disk, err = exit.Within(ctx, func() (*doctor.Disk, error) {
			d := doctor.MeasureDisk(ctx, share)
			return d, ctx.Err()
		})
		if err != nil {
			return exit.Interrupted("")
		}
	}
	r := doctor.Examine(host, path)
	if asJSON {
		printFindingsJSON(c.OutOrStdout(), r, host.Disk)
		return nil
	}
	printFindings(c.OutOrStdout(), r, host.Disk, c.Flags().Changed("for"))
	return nil
}

// printFindings shows the findings to people.
func printFindings(w io.Writer, r *doctor.Report, disk *doctor.Disk, stated bool) {
	fmt.Fprintf(w, "for a path of %s × %s (BDP %s)", units.Rate(r.Path.Rate), units.Time(r.Path.RTT), units.Bytes(int64(r.Path.BDP())))
	if !stated {
		fmt.Fprint(w, ": state yours with --for")
	}
	fmt.Fprintln(w)
	if len(r.Findings) == 0 {
		fmt.Fprintln(w, "\nnothing was found that costs goodput")
	}
	var applicable []string
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintln(w)
		hanging(w, fmt.Sprintf("%-3s", fmt.Sprintf("%d.", i+1)), f.What)
		line := func(label, text string) { hanging(w, fmt.Sprintf("   %-6s", label), text) }
		line("why", f.Why)
		if g := f.Gain; g != nil {
			text := fmt.Sprintf("%s: %s → %s", g.Of, units.Rate(g.Before), units.Rate(g.After))
			if g.Assuming != "" {
				text += ", given " + g.Assuming
			}
			line("gain", text)
		}
		if f.Command != "" { // whole, to be copied
			fmt.Fprintf(w, "   %-5s %s\n", "run", term.OneLine(f.Command))
		}
		line("note", f.Blocked)
		if len(f.Changes) > 0 {
			applicable = append(applicable, fmt.Sprint(i+1))
		}
	}
	fmt.Fprintln(w)
	if disk != nil && disk.Problem == "" {
		fmt.Fprintf(w, "disk: %s takes %s/s, gives %s/s\n", term.OneLine(disk.Dir), units.Bytes(int64(disk.Write)), units.Bytes(int64(disk.Read)))
	}
	if len(r.Fine) > 0 {
		hanging(w, "fine: ", strings.Join(r.Fine, ", "))
	}
	if len(r.Unseen) > 0 {
		hanging(w, "not shown by this host: ", strings.Join(r.Unseen, ", "))
	}
	if len(applicable) > 0 {
		command := "fxfer doctor apply"
		if stated {
			command += fmt.Sprintf(" --for %s,%s", units.ExactRate(int64(r.Path.Rate)), r.Path.RTT)
		}
		fmt.Fprintf(w, "to change %s: sudo %s\n", strings.Join(applicable, ", "), command)
	}
}

// hanging writes a label and a text, whose lines stand below each other within 80 columns.
func hanging(w io.Writer, label, text string) {
	for _, line := range term.Wrap(term.OneLine(text), 80-len(label)) {
		fmt.Fprintln(w, label+line)
		label = strings.Repeat(" ", len(label))
	}
}

type jsonDoctorFinding struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	What    string          `json:"what"`
	Why     string          `json:"why"`
	Command string          `json:"command,omitempty"`
	Gain    *jsonDoctorGain `json:"gain,omitempty"`
	Changes []string        `json:"changes"` // the changes that apply would make
	Note    string          `json:"note,omitempty"`
}

type jsonDoctorGain struct {
	Of       string  `json:"of"`
	Before   float64 `json:"before_bits_per_second"`
	After    float64 `json:"after_bits_per_second"`
	Assuming string  `json:"given,omitempty"`
}

type jsonDoctorSummary struct {
	Type       string          `json:"type"`
	Rate       float64         `json:"rate_bits_per_second"`
	RTT        float64         `json:"rtt_seconds"`
	BDP        int64           `json:"bdp_bytes"`
	Findings   int             `json:"findings"`
	Applicable int             `json:"applicable"`
	Fine       []string        `json:"fine"`
	Unseen     []string        `json:"not_shown"`
	Disk       *jsonDoctorDisk `json:"disk,omitempty"`
}

type jsonDoctorDisk struct {
	Dir   string  `json:"path"`
	Write float64 `json:"write_bytes_per_second"`
	Read  float64 `json:"read_bytes_per_second"`
	Error string  `json:"error,omitempty"`
}

// printFindingsJSON prints an object for each finding, then a summary.
func printFindingsJSON(w io.Writer, r *doctor.Report, disk *doctor.Disk) {
	sum := jsonDoctorSummary{
		Type: "summary", Rate: r.Path.Rate, RTT: r.Path.RTT.Seconds(), BDP: int64(r.Path.BDP()), Findings: len(r.Findings),
		Fine: append([]string{}, r.Fine...), Unseen: append([]string{}, r.Unseen...),
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		line := jsonDoctorFinding{
			Type: "finding", ID: f.ID, What: f.What, Why: f.Why, Command: f.Command, Note: f.Blocked,
			Gain: (*jsonDoctorGain)(f.Gain), Changes: []string{},
		}
		for j := range f.Changes {
			line.Changes = append(line.Changes, f.Changes[j].String())
		}
		if len(f.Changes) > 0 {
			sum.Applicable++
		}
		term.JSON(w, line)
	}
	if disk != nil {
		sum.Disk = &jsonDoctorDisk{disk.Dir, disk.Write, disk.Read, disk.Problem}
	}
	term.JSON(w, sum)
}

func openChanger() (*doctor.Changer, error) {
	home, err := identity.Home()
	if err != nil {
		return nil, err
	}
	return doctor.NewChanger(home)
}

func doctorApply(c *cobra.Command, path plan.Path, dryRun, yes bool) error {
	host, err := doctor.Read()
	if err != nil {
		return err
	}
	changer, err := openChanger()
	if err != nil {
		return err
	}
	p, err := changer.PlanApply(doctor.Examine(host, path).Findings)
	if err != nil {
		return err
	}
	if showChanges(c, p, dryRun) {
		return nil
	}
	if !yes {
		if !term.Present() {
			return exit.Usage("add --yes, or look first with --dry-run", "there is no terminal to ask on")
		}
		ctx, stop := exit.Interruptible(c.Context())
		defer stop()
		if ok, err := term.Agree(ctx, "Make these changes? [y/N] "); err != nil || !ok {
			return &fxfer.Error{Kind: fxfer.KindInterrupted, Err: errors.New("nothing was changed")}
		}
	}
	if err := changer.Apply(p); err != nil {
		return needRoot(err, c)
	}
	fmt.Fprintf(c.OutOrStdout(), "done: the values before are in %s, and \"fxfer doctor undo\" restores them\n", term.OneLine(changer.Saved()))
	return nil
}

func doctorUndo(c *cobra.Command, dryRun bool) error {
	changer, err := openChanger()
	if err != nil {
		return err
	}
	p, err := changer.PlanUndo()
	if err != nil {
		return err
	}
	if showChanges(c, p, dryRun) {
		return nil
	}
	if err := changer.Undo(p); err != nil {
		return needRoot(err, c)
	}
	fmt.Fprintln(c.OutOrStdout(), "done")
	return nil
}

// showChanges prints a plan and reports whether there is nothing more to do.
func showChanges(c *cobra.Command, p *doctor.Plan, dryRun bool) (done bool) {
	for _, line := range p.Diff {
		fmt.Fprintln(c.OutOrStdout(), term.OneLine(line))
	}
	for _, note := range p.Notes {
		fmt.Fprintln(c.ErrOrStderr(), "fxfer: note: "+term.OneLine(note))
	}
	if len(p.Diff) == 0 {
		fmt.Fprintln(c.OutOrStdout(), "nothing to change")
	}
	return dryRun || p.Empty()
}

// needRoot adds a hint to an error that comes from missing privileges.
func needRoot(err error, c *cobra.Command) error {
	if errors.Is(err, fs.ErrPermission) {
		return exit.WithHint(&fxfer.Error{Kind: fxfer.KindOther, Err: err}, "it takes root: sudo "+again(c))
	}
	return err
}

// again is the command as it was given, which has flags only.
func again(c *cobra.Command) string {
	words := []string{c.CommandPath()}
	c.Flags().Visit(func(f *pflag.Flag) {
		if words = append(words, "--"+f.Name); f.Value.Type() != "bool" {
			words = append(words, f.Value.String())
		}
	})
	return strings.Join(words, " ")
}
