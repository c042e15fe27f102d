package hosts

import (
	"fmt"
	"strings"
)

// SMBConfig makes the folders that smbd writes to, below state, and returns a configuration with
// them. It serves the folder in to everybody, at a port. more is a line of its section [global].
func (f *Folder) SMBConfig(port int, state, more string) (string, error) {
	var folders strings.Builder
	for _, name := range []string{"lock directory", "state directory", "cache directory", "pid directory", "private dir", "ncalrpc dir"} {
		dir := state + "/" + strings.Fields(name)[0]
		if err := f.Mkdir(dir); err != nil {
			return "", err
		}
		fmt.Fprintf(&folders, "%s = %s\n", name, f.Abs(dir))
	}
	return fmt.Sprintf(`[global]
server role = standalone server
map to guest = Bad User
guest account = nobody
smb ports = %d
disable netbios = yes
load printers = no
printing = bsd
printcap name = /dev/null
server signing = disabled
%s
%s[in]
path = %s
read only = no
guest ok = yes
`, port, more, folders.String(), f.Abs("in")), nil
}
