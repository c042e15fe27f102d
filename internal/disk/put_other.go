//go:build !linux

package disk

// put writes the file m.Path, base in f, under its reserved name.
func (t *Tree) put(f *folder, base string, m Meta, data []byte, opt *TargetOptions) (*Staged, error) {
	return t.putOver(f, base, m, data, opt)
}
