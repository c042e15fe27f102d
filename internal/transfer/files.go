package transfer

import (
	"fmt"
	"sync"

	"github.com/fxfer/fxfer/internal/disk"
)

// filesPerEntry is how many files an entry of several blocks has open, at most and as a rule: its
// partial file, and the checkpoint or the old version.
const filesPerEntry = 2

// OpenFiles bounds the files that the sessions of a server have open for entries under way. The
// sessions of one client never have more than three times as many as are left for all others, so
// that one client does not make the sessions of others fail.
type OpenFiles struct {
	mu   sync.Mutex // guards left, and has of its clients
	left int
}

// NewOpenFiles returns so many files.
func NewOpenFiles(files int) *OpenFiles { return &OpenFiles{left: files} }

// ClientFiles are the files of one client's sessions. A nil ClientFiles bounds nothing. Its methods
// are safe for concurrent use.
type ClientFiles struct {
	all *OpenFiles
	has int
}

// Client returns the files of another client.
func (f *OpenFiles) Client() *ClientFiles { return &ClientFiles{all: f} }

// Take takes the files of an entry. An error matches disk.ErrTooManyFiles.
func (c *ClientFiles) Take() error {
	if c == nil {
		return nil
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.has+filesPerEntry > 3*(c.all.left-filesPerEntry) {
		return fmt.Errorf("this client has %d: %w", c.has, disk.ErrTooManyFiles)
	}
	c.all.left -= filesPerEntry
	c.has += filesPerEntry
	return nil
}

// Give gives the files of so many entries back.
func (c *ClientFiles) Give(entries int) {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.left += entries * filesPerEntry
	c.has -= entries * filesPerEntry
}
