package backup

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/fxfer/fxfer/internal/retention"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// Client is the Courier that goes over the network, with the identity of fxfer's folder Home; "" is the user's.
type Client struct{ Home string }

// client returns the client for a job's server.
func (c *Client) client(j *Job, opt fxfer.Options) (*fxfer.Client, error) {
	opt.Home, opt.Streams, opt.Compress = c.Home, j.Streams, j.Compress
	return fxfer.NewClient(opt)
}

// Transfer implements Courier.
func (c *Client) Transfer(ctx context.Context, t *Task) (*fxfer.Report, error) {
	j := t.Job
	opt := fxfer.Options{Throttle: t.Limit, Progress: t.Progress, Notice: t.Notice}
	if j.Mode == Snapshots {
		return nil, errNoSnapshots
	}
	if j.Command == "" {
		opt.Source = fxfer.Source{Rules: j.Filters, MaxSize: j.MaxSize, OneFileSystem: j.OneFileSystem}
		opt.Target.Delete = true
	}
	client, err := c.client(j, opt)
	if err != nil {
		return nil, err
	}
	if j.Command == "" {
		return client.Send(ctx, j.Sources, j.Destination)
	}
	target := j.Destination
	target.Path, target.TrailingSlash = path.Join(target.Path, j.File), false
	ctx, cancel := context.WithCancel(ctx)
	out, done, err := outputOf(ctx, j.Command, t.Env)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the command: %w", err)
	}
	defer done()
	defer cancel()
	return client.SendStream(ctx, out, target)
}

// ErrServerPrunes is that a client may not remove snapshots: the server does, by its own policy.
var ErrServerPrunes = errors.New("the server removes snapshots by its own policy")

// Snapshots returns the names of a job's complete snapshots, the oldest first.
func (c *Client) Snapshots(ctx context.Context, j *Job) ([]string, error) {
	return nil, errNoSnapshots
}

// Prune implements Courier.
func (c *Client) Prune(ctx context.Context, j *Job) ([]string, error) {
	return nil, errNoSnapshots
}

// SnapshotTime returns the time of a snapshot, and whether name is one's.
func SnapshotTime(name string) (time.Time, bool) { return retention.ParseName(name) }

var errNoSnapshots = &fxfer.Error{Kind: fxfer.KindUsage, Err: errors.New("snapshots are not there yet"), Remedy: "mode: mirror"}
