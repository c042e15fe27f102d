package series

import (
	"slices"

	"github.com/fxfer/fxfer/internal/access"
	"github.com/fxfer/fxfer/internal/snapshot"
)

// Listed is a snapshot of a series.
type Listed struct {
	Name    string
	Filling bool  // it is not complete, and the rest is not known
	Failed  int64 // entries that it lacks because they failed
	Damaged int64 // files that are known to be damaged
	// LastIntact is 1 if the snapshot has the last intact version of a file, and else 0.
	LastIntact int64
}

// List lists the snapshots of a series in the order of their names, complete ones first.
func List(in *access.Series) (all []Listed, err error) {
	complete, filling, err := in.Snapshots()
	if err != nil {
		return nil, err
	}
	state, err := in.State()
	if err != nil {
		return nil, err
	}
	defer state.Close()
	intact, err := in.LastIntact()
	if err != nil {
		return nil, err
	}
	for _, name := range complete {
		x := Listed{Name: name}
		failed, err := snapshot.Failures(state, name, nil)
		if err != nil {
			return nil, err
		}
		damage, err := snapshot.ReadDamage(state, name)
		if err != nil {
			return nil, err
		}
		x.Failed, x.Damaged = failed, int64(len(damage))
		if intact[name] {
			x.LastIntact = 1
		}
		all = append(all, x)
	}
	for _, name := range filling {
		all = append(all, Listed{Name: name, Filling: true})
	}
	return all, nil
}

// Expired returns which of the complete snapshots, in order, to remove: those that are not in keep
// and older than the newest that is. Later ones stay: who decides may not know of them. If no
// snapshot of keep is there, all stay, and so do those with the last intact version of a file.
func Expired(in *access.Series, keep []string) (remove []string, err error) {
	complete, _, err := in.Snapshots()
	if err != nil {
		return nil, err
	}
	intact, err := in.LastIntact()
	if err != nil {
		return nil, err
	}
	remove = slices.DeleteFunc(expired(complete, keep), func(name string) bool { return intact[name] })
	return remove, nil
}

func expired(complete, keep []string) (remove []string) {
	kept := make(map[string]bool, len(keep))
	for _, name := range keep {
		kept[name] = true
	}
	newest := 0 // the number of those before the newest that is kept
	for i, name := range complete {
		if kept[name] {
			newest = i
		}
	}
	return slices.DeleteFunc(slices.Clone(complete[:newest]), func(name string) bool { return kept[name] })
}
