package transfer

import (
	"path"
	"strings"

	"github.com/fxfer/fxfer/internal/disk"
	"github.com/fxfer/fxfer/internal/wire"
)

// maxQuestions bounds the questions about folders that the receiver may have asked and that are not
// answered.
const maxQuestions = 64

// pruneAnswers answers the questions of a receiver that prunes: which names of a folder the source does
// not have.
type pruneAnswers struct {
	side      *side
	source    Source
	questions chan *wire.Folder
}

func newPruneAnswers(s *side, source Source) *pruneAnswers {
	return &pruneAnswers{side: s, source: source, questions: make(chan *wire.Folder, maxQuestions)}
}

// ask queues a question.
func (p *pruneAnswers) ask(m *wire.Folder) error {
	if p == nil || len(p.questions) == cap(p.questions) {
		return protocolError("unexpected question about a folder")
	}
	p.questions <- m
	return nil
}

// run answers questions until the session is over or one cannot be answered.
func (p *pruneAnswers) run() error {
	for {
		select {
		case <-p.side.ctx.Done():
			return nil
		case m := <-p.questions:
			missing, err := p.missing(m)
			if err != nil {
				return err
			}
			p.side.pump.send(&wire.Extra{Names: missing})
		}
	}
}

// missing returns the positions of the names that the source does not have.
func (p *pruneAnswers) missing(m *wire.Folder) (positions []uint64, err error) {
	defer p.side.checking()()
	for i, name := range m.Names {
		bad := strings.Contains(name, "/") || name == "." || name == ".."
		if bad || disk.CheckPath(m.Path) != nil {
			return nil, protocolError("invalid question about %q in %q", name, m.Path)
		}
		has, err := p.source.Has(path.Join(m.Path, name))
		if err != nil { // it may be there
			return nil, &wire.Error{Code: wire.CodeSourceDisk, Text: err.Error()}
		}
		if !has {
			positions = append(positions, uint64(i))
		}
	}
	return positions, nil
}
