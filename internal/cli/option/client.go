package option

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fxfer/fxfer/internal/identity"
	"github.com/fxfer/fxfer/pkg/fxfer"
)

// ParsePin reads the key of a server.
func ParsePin(s string) (string, error) {
	pin, err := identity.ParsePin(s)
	return string(pin), err
}

// AddTrust adds the flags about the server's identity and about this client's.
func AddTrust(flags *pflag.FlagSet, opt *fxfer.Options) {
	Add(flags, &opt.Pin, "pin", "key", "", "the server's key, as \"fxfer serve\" prints it; it is remembered", ParsePin)
	Add(flags, &opt.TLS.CA, "tls-ca", "file", "none", "trust certificates of these CAs (PEM), or system", parseCA)
	Add(flags, &opt.TLS.Cert, "tls-cert", "file", "none", "show this certificate (PEM) instead of the key", parsePEM)
	Add(flags, &opt.TLS.Key, "tls-key", "file", "none", "the private key of that certificate (PEM)", parsePEM)
}

// parsePEM reads the name of a file with a certificate or a key, or "none".
func parsePEM(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	return ParseReadable(s)
}

// parseCA reads the name of a file with certificates of CAs, "system" or "none".
func parseCA(s string) (string, error) {
	if s == "none" {
		return "", nil
	}
	_, err := identity.OpenAuthorities(s, "", nil)
	return s, err
}

// ParseTransport reads the name of a transport.
func ParseTransport(s string) (fxfer.Transport, error) {
	switch t := fxfer.Transport(s); t {
	case fxfer.TransportTCP, fxfer.TransportQUIC, fxfer.TransportAuto:
		return t, nil
	}
	return "", fmt.Errorf("%q is neither tcp nor quic nor auto", s)
}

// AddTransport adds the flags about the transport of a client.
func AddTransport(flags *pflag.FlagSet, opt *fxfer.Options) {
	Add(flags, &opt.QLog, "qlog", "dir", "", "log QUIC connections as qlog files into an existing folder", parseFolder)
	Add(flags, &opt.Transport, "transport", "how", Auto, "tcp, quic, or auto to choose by the path", ParseTransport)
	AddCrypto(flags, &opt.StandardCrypto)
	AddList(flags, &opt.Via, "via", "relay", "connect through this fxfer relay, HOST[:PORT], or direct; repeatable: the first that works", fxfer.ParseVia)
}

// AddCrypto adds the flag about the origin of TLS records and ciphers.
func AddCrypto(flags *pflag.FlagSet, standard *bool) {
	Add(flags, standard, "crypto", "how", "own", "TLS records and ciphers: own, or std for Go's", parseCrypto)
}

func parseCrypto(s string) (standard bool, err error) {
	if s != "own" && s != "std" {
		return false, fmt.Errorf("%q is neither own nor std", s)
	}
	return s == "std", nil
}

// CryptoInEnvironment is AddCrypto for commands without that flag.
func CryptoInEnvironment() (standard bool, err error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddCrypto(flags, &standard)
	return standard, ApplyEnvironment(flags)
}

// AddTuning adds the flags that replace automatic tuning.
func AddTuning(flags *pflag.FlagSet, sockBuf *int, congestion *string) {
	Add(flags, sockBuf, "sock-buf", "size", Auto, "fixed socket buffers at both ends, such as 64KiB", ParseSockBuf)
	Add(flags, congestion, "congestion", "name", Auto, "congestion control at both ends, such as bbr", ParseCongestion)
}
