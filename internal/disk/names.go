package disk

import (
	"errors"
	"io"
	"iter"
	"os"
	"slices"
)

const (
	// readBatch is how many names are read from a folder at a time.
	readBatch = 1024
	// listMemory bounds the names of a folder that are known at a time where they have to be in
	// order, bytes. Whoever fills a folder decides how many there are.
	listMemory = 1 << 20
	// nameMemory is what a name takes beside its bytes.
	nameMemory = 16
)

// firstNames are the first names of a folder, in order, that come after a given one.
type firstNames struct {
	after       string
	most, bytes int // names, and what they take in memory; at least one is kept

	names []string // sorted by sort
	held  int      // what they take in memory
	last  string   // names after this one were left out, if more
	more  bool
}

// add takes in a name. Names may come in any order.
func (n *firstNames) add(name string) {
	if name <= n.after || n.more && name > n.last {
		return
	}
	n.names = append(n.names, name)
	n.held += len(name) + nameMemory
	if len(n.names) > 2*n.most || n.held > 2*n.bytes {
		n.sort()
	}
}

// sort orders the names and leaves out those that are too many.
func (n *firstNames) sort() {
	slices.Sort(n.names)
	for len(n.names) > 1 && (len(n.names) > n.most || n.held > n.bytes) {
		last := len(n.names) - 1
		n.held -= len(n.names[last]) + nameMemory
		n.names[last] = ""
		n.names, n.more = n.names[:last], true
	}
	if n.more {
		n.last = n.names[len(n.names)-1]
	}
}

// namesIn goes through the names in a folder, sorted. It reads the folder again for each listMemory
// of them. After an error there are no more.
func namesIn(folder *os.Root) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		n := firstNames{most: listMemory, bytes: listMemory}
		for again := true; again; again = n.more {
			n = firstNames{after: n.last, most: listMemory, bytes: listMemory}
			if err := n.read(folder); err != nil {
				yield("", err)
				return
			}
			for _, name := range n.names {
				if !yield(name, nil) {
					return
				}
			}
		}
	}
}

// read takes in all names of a folder.
func (n *firstNames) read(folder *os.Root) error {
	f, err := folder.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		names, err := f.Readdirnames(readBatch)
		for _, name := range names {
			n.add(name)
		}
		if errors.Is(err, io.EOF) {
			n.sort()
			return nil
		}
		if err != nil {
			return err
		}
	}
}
