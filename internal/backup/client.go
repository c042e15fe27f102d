package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/fxfer/fxfer/internal/command"
	"github.com/fxfer/fxfer/internal/profile"
	"github.com/fxfer/fxfer/internal/snapshot"
	"github.com/fxfer/fxfer/internal/units"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Client is the Transferrer that uses the network.
type Client struct {
	Home           string // folder of its identity and profiles; "" is the user's, without profiles
	StandardCrypto bool   // see fxfer.Options
}

// client returns the client for a job's server.
func (c *Client) client(j *Job) (*fxfer.Client, error) {
	opt, err := c.options(j, fxfer.Options{})
	if err != nil {
		return nil, err
	}
	return fxfer.NewClient(opt)
}

// options sets the options of a job, and those of its profile that the job does not have itself. The
// profile is read for each run, so a new one counts at once.
func (c *Client) options(j *Job, opt fxfer.Options) (fxfer.Options, error) {
	opt.StandardCrypto = c.StandardCrypto
	opt.Home, opt.TLS, opt.Streams, opt.Compress, opt.Via = c.Home, j.TLS, j.Streams, j.Compress, j.Via
	if j.Profile == "" {
		return opt, nil
	}
	p, err := profile.Load(c.Home, j.Profile)
	if err == nil {
		p.Apply(&opt, func(key string) bool {
			return key == "streams" && j.Streams > 0 || key == "priority" && j.Priority != ""
		})
	}
	return opt, err
}

// Transfer implements Transferrer.
func (c *Client) Transfer(ctx context.Context, t *Task) (*fxfer.Report, error) {
	j := t.Job
	call := fxfer.Transfer{
		Throttle: t.Limit, Priority: t.Priority, Deadline: t.Deadline, Left: t.Left, Progress: t.Progress,
	}
	call.Target.Delta, call.Target.Privileged = fxfer.Delta(j.Delta), j.Privileged
	if j.Mode == Snapshots {
		call.Target.Snapshot, call.Target.AllowFailed = t.Snapshot, t.AllowFailed
	}
	if j.Command == "" {
		call.Selection = fxfer.Selection{Rules: j.Filters, MaxSize: j.MaxSize, OneFileSystem: j.OneFileSystem}
		call.Target.Delete = j.Mode == Mirror
	}
	opt, err := c.options(j, fxfer.Options{Notice: t.Notice})
	if err != nil {
		return nil, err
	}
	if opt.Priority != "" && t.Priority.Get() == "" { // of the profile; the job has none, and has got none since
		t.Priority.Set(opt.Priority)
	}
	client, err := fxfer.NewClient(opt)
	if err != nil {
		return nil, err
	}
	report, err := carry(ctx, client, t, call)
	if t.Again && errors.Is(err, fxfer.ErrSnapshotExists) { // the previous attempt succeeded, but the connection ended before its answer arrived
		return c.made(ctx, t, report)
	}
	return report, err
}

// made returns the outcome of the previous attempt, which had made the snapshot.
func (c *Client) made(ctx context.Context, t *Task, report *fxfer.Report) (*fxfer.Report, error) {
	if t.Job.AllowFailed == 0 {
		return report, nil
	}
	all, err := c.Snapshots(ctx, t.Job)
	i := slices.IndexFunc(all, func(s fxfer.Snapshot) bool { return s.Name == t.Snapshot })
	if err != nil || i < 0 || all[i].Failed == 0 {
		return report, err
	}
	report.Snapshot, report.Failed = t.Snapshot, all[i].Failed
	lacking := units.Count(report.Failed, "entry", "entries")
	return report, &fxfer.Error{Kind: fxfer.KindPartial, Err: fmt.Errorf("the snapshot %s is there, without %s that failed", t.Snapshot, lacking)}
}

// carry sends or gets the files of a job.
func carry(ctx context.Context, client *fxfer.Client, t *Task, call fxfer.Transfer) (report *fxfer.Report, err error) {
	j := t.Job
	if j.Mode == Replica {
		return replicate(ctx, client, t, call)
	}
	if j.Pulls() {
		return client.Get(ctx, []fxfer.URL{j.Source}, j.Target(), call)
	}
	if j.Command == "" {
		return client.Send(ctx, j.Sources, j.Destination, call)
	}
	target := j.Destination
	target.Path, target.TrailingSlash = path.Join(target.Path, j.File), false
	err = command.Feed(ctx, j.Command, t.Env, nil, func(ctx context.Context, out io.Reader) (err error) {
		report, err = client.SendStream(ctx, out, target, call)
		return err
	})
	return report, err
}

// ErrServerPrunes means that this client may not remove snapshots, because the server removes them
// by its own policy.
var ErrServerPrunes = errors.New("the server removes snapshots by its own policy")

// ServerPrunes reports whether the server removes old snapshots of a job by its own policy, because
// this client may not remove any.
func (c *Client) ServerPrunes(ctx context.Context, j *Job) (bool, error) {
	if j.Pulls() {
		return false, nil
	}
	client, err := c.client(j)
	if err != nil {
		return false, err
	}
	shares, err := client.List(ctx, fxfer.URL{Host: j.Destination.Host, Port: j.Destination.Port})
	for _, s := range shares {
		if s.Path == j.Destination.Share {
			rights, err := fxfer.ParseRights(s.Rights)
			return err == nil && !rights.Has(fxfer.Write), err
		}
	}
	return false, err
}

// Scrub implements Transferrer.
func (c *Client) Scrub(ctx context.Context, j *Job, snapshot string, call fxfer.Verification) (*fxfer.Comparison, error) {
	client, err := c.client(j)
	if err != nil {
		return nil, err
	}
	if j.Pulls() {
		return client.ScrubLocal(ctx, j.Folder, snapshot, call)
	}
	return client.Scrub(ctx, j.Destination, snapshot, call)
}

// Snapshots implements Transferrer.
func (c *Client) Snapshots(ctx context.Context, j *Job) ([]fxfer.Snapshot, error) {
	client, err := c.client(j)
	if err != nil {
		return nil, err
	}
	var all []fxfer.Snapshot
	if j.Pulls() {
		all, err = client.LocalSnapshots(j.Folder)
	} else {
		all, err = client.Snapshots(ctx, j.Destination)
	}
	return slices.DeleteFunc(all, func(s fxfer.Snapshot) bool { return s.Partial }), err
}

// Prune implements Transferrer. If the client may only append, the error is ErrServerPrunes.
func (c *Client) Prune(ctx context.Context, j *Job) ([]string, error) {
	if j.Keep == (snapshot.Keep{}) {
		return nil, nil
	}
	client, err := c.client(j)
	if err != nil {
		return nil, err
	}
	all, err := c.Snapshots(ctx, j)
	if err != nil {
		return nil, err
	}
	stay, remove := j.Keep.Decide(namesOf(all), j.Zone)
	if len(remove) == 0 {
		return nil, nil
	}
	var keep []string
	for _, k := range stay {
		keep = append(keep, k.Name)
	}
	if j.Pulls() {
		return client.PruneLocalSnapshots(ctx, j.Folder, keep)
	}
	removed, err := client.PruneSnapshots(ctx, j.Destination, keep)
	if fxfer.KindOf(err) == fxfer.KindTrust {
		err = ErrServerPrunes
	}
	return removed, err
}

// namesOf returns the names of snapshots.
func namesOf(all []fxfer.Snapshot) (names []string) {
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names
}
