package pins

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var exactVersion = map[string]*regexp.Regexp{
	"npm":    regexp.MustCompile(`^v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`),
	"pypi":   regexp.MustCompile(`^v?\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)*(\+[0-9A-Za-z.]+)?$`),
	"go":     regexp.MustCompile(`^(v\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?|[0-9a-f]{12,40})$`),
	"docker": regexp.MustCompile(`^(sha256:[0-9a-f]{64}|.*\d.*)$`),
}

// Floating tells whether another thing may run tomorrow under the same command: no
// version is named, or one that moves, as latest and ^1.2 do.
func (p Package) Floating() bool {
	exact, known := exactVersion[p.Kind]
	return known && !exact.MatchString(p.Version)
}

// String is the package for people; empty when the command names none.
func (p Package) String() string {
	return strings.TrimSpace(strings.TrimSpace(p.Kind+" "+p.Name) + " " + p.Version)
}

// packageOf reads which published thing a command runs. What it can't tell for sure
// is none.
func packageOf(command []string) Package {
	program, args := split(command)
	if program == "env" {
		for len(args) > 0 && (strings.Contains(args[0], "=") || args[0] == "-i") {
			args = args[1:]
		}
		program, args = split(args)
	}
	switch program {
	case "npx", "bunx", "pnpx":
		return npm(args, npxValues)
	case "npm", "pnpm", "yarn", "bun":
		if len(args) > 0 && slices.Contains([]string{"exec", "x", "dlx"}, args[0]) {
			return npm(args[1:], npxValues)
		}
	case "uvx":
		return pypi(args, "--from")
	case "uv":
		if len(args) > 1 && args[0] == "tool" && args[1] == "run" {
			return pypi(args[2:], "--from")
		}
	case "pipx":
		if len(args) > 0 && args[0] == "run" {
			return pypi(args[1:], "--spec")
		}
	case "docker", "podman":
		return image(args)
	case "go":
		if len(args) > 0 && args[0] == "run" {
			return module(args[1:])
		}
	case "deno":
		if len(args) > 0 && args[0] == "run" {
			return deno(args[1:])
		}
	}
	return Package{}
}

func split(command []string) (program string, args []string) {
	if len(command) == 0 {
		return "", nil
	}
	program = path.Base(strings.ReplaceAll(command[0], `\`, "/"))
	for _, ext := range []string{".exe", ".cmd"} {
		program = strings.TrimSuffix(program, ext)
	}
	return program, command[1:]
}

// operand skips flags. Those in values are followed by one, unless it is joined by
// an equals sign; found has what was given to them.
func operand(args []string, values func(flag string) bool) (rest []string, found map[string]string) {
	found = map[string]string{}
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			return args[1:], found
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			return args, found
		}
		args = args[1:]
		flag, value, joined := strings.Cut(arg, "=")
		if !joined && values(flag) && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		if _, again := found[flag]; !again {
			found[flag] = value
		}
	}
	return nil, found
}

func among(flags ...string) func(string) bool {
	return func(f string) bool { return slices.Contains(flags, f) }
}

var npxValues = among("-p", "--package", "-c", "--call", "-w", "--workspace", "--registry", "--cache", "--userconfig", "--prefix")

func npm(args []string, values func(string) bool) Package {
	rest, flags := operand(args, values)
	spec := flags["--package"]
	if spec == "" {
		spec = flags["-p"]
	}
	if _, call := flags["-c"]; call && spec == "" {
		return Package{}
	}
	if spec == "" && len(rest) > 0 {
		spec = rest[0]
	}
	return npmSpec(spec)
}

// npmSpec reads NAME[@VERSION], where the name may begin with @SCOPE/.
func npmSpec(spec string) Package {
	if spec == "" || local(spec) {
		return Package{}
	}
	if strings.Contains(spec, ":") { // a repository or an address: it moves unless it names a commit
		name, version, _ := strings.Cut(spec, "#")
		return Package{Kind: "npm", Name: name, Version: version}
	}
	name, version := spec, ""
	if at := strings.LastIndex(spec, "@"); at > 0 {
		name, version = spec[:at], spec[at+1:]
	}
	return Package{Kind: "npm", Name: name, Version: version}
}

func local(spec string) bool {
	return strings.HasPrefix(spec, ".") || strings.HasPrefix(spec, "/") || strings.HasPrefix(spec, "~") || strings.HasPrefix(spec, "file:")
}

var uvxValues = among("--from", "--spec", "--with", "-w", "--python", "-p", "--index-url", "-i", "--index", "--default-index",
	"--extra-index-url", "--with-editable", "--with-requirements", "--directory", "--project", "--env-file", "--pip-args")

func pypi(args []string, source string) Package {
	rest, flags := operand(args, uvxValues)
	spec := flags[source]
	if spec == "" && len(rest) > 0 {
		spec = rest[0]
	}
	if spec == "" || local(spec) {
		return Package{}
	}
	if strings.Contains(spec, "://") {
		return Package{Kind: "pypi", Name: spec}
	}
	at := strings.IndexAny(spec, "@=<>~! ")
	if at < 0 {
		return Package{Kind: "pypi", Name: spec}
	}
	version := strings.TrimSpace(spec[at:])
	for _, mark := range []string{"===", "==", "@"} {
		if v, ok := strings.CutPrefix(version, mark); ok {
			version = strings.TrimSpace(v)
			break
		}
	}
	return Package{Kind: "pypi", Name: spec[:at], Version: version}
}

// dockerBools are the flags of docker and podman run that no value follows; every
// other one has a value.
var dockerBools = among("--rm", "--interactive", "--tty", "--detach", "--init", "--privileged", "--read-only", "--publish-all",
	"--no-healthcheck", "--oom-kill-disable", "--sig-proxy", "--quiet", "--disable-content-trust", "--replace", "--debug", "--tls", "--tlsverify")

func dockerValues(flag string) bool {
	if strings.HasPrefix(flag, "--") {
		return !dockerBools(flag)
	}
	// Of short flags in a row the last one decides: -it has no value, -ite has one.
	return !strings.Contains("itdPqD", flag[len(flag)-1:]) && strings.Trim(flag[1:len(flag)-1], "itdPqD") == ""
}

func image(args []string) Package {
	rest, _ := operand(args, dockerValues)
	if len(rest) > 1 && rest[0] == "container" {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != "run" {
		return Package{}
	}
	rest, _ = operand(rest[1:], dockerValues)
	if len(rest) == 0 || local(rest[0]) {
		return Package{}
	}
	name, digest, pinned := strings.Cut(rest[0], "@")
	if pinned {
		return Package{Kind: "docker", Name: name, Version: digest}
	}
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		return Package{Kind: "docker", Name: name[:at], Version: name[at+1:]}
	}
	return Package{Kind: "docker", Name: name}
}

var goValues = among("-C", "-mod", "-tags", "-ldflags", "-gcflags", "-exec", "-p", "-modfile", "-overlay", "-pgo")

func module(args []string) Package {
	rest, _ := operand(args, goValues)
	if len(rest) == 0 || local(rest[0]) || strings.HasSuffix(rest[0], ".go") {
		return Package{}
	}
	name, version, ok := strings.Cut(rest[0], "@")
	if !ok { // a package of the module in the working directory
		return Package{}
	}
	return Package{Kind: "go", Name: name, Version: version}
}

func deno(args []string) Package {
	rest, _ := operand(args, among("-c", "--config", "--import-map", "--lock", "--env-file", "--cert"))
	if len(rest) > 0 {
		if spec, ok := strings.CutPrefix(rest[0], "npm:"); ok {
			return npmSpec(strings.TrimPrefix(spec, "/"))
		}
	}
	return Package{}
}
