package pins_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-mcp/countersign/approvals/action"
	"github.com/countersign-mcp/countersign/server/pins"
)

func TestPackage(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	for _, row := range []struct {
		command, want string
		floating      bool
	}{
		{"npx -y @acme/desk@1.4.2", "npm @acme/desk 1.4.2", false},
		{"npx @acme/desk", "npm @acme/desk", true},
		{"npx --yes desk@latest /srv", "npm desk latest", true},
		{"npx desk@^1.2.0", "npm desk ^1.2.0", true},
		{"npx desk@1", "npm desk 1", true},
		{"npx desk@2.0.0-rc.1", "npm desk 2.0.0-rc.1", false},
		{"npx -y --package=@acme/desk@1.4.2 desk-mcp", "npm @acme/desk 1.4.2", false},
		{"npx -p @acme/desk@1.4.2 desk-mcp", "npm @acme/desk 1.4.2", false},
		{"/usr/local/bin/npx -y -- desk@1.0.0", "npm desk 1.0.0", false},
		{`C:\node\npx.cmd desk@1.0.0`, "npm desk 1.0.0", false},
		{"npx github:acme/desk", "npm github:acme/desk", true},
		{"npx ./desk", "", false},
		{"npx", "", false},
		{"npm exec -- desk@1.0.0", "npm desk 1.0.0", false},
		{"npm start", "", false},
		{"pnpm dlx desk@1.0.0", "npm desk 1.0.0", false},
		{"bunx desk@1.0.0", "npm desk 1.0.0", false},
		{"uvx mcp-server-git", "pypi mcp-server-git", true},
		{"uvx mcp-server-git@2025.1.14", "pypi mcp-server-git 2025.1.14", false},
		{"uvx mcp-server-git==2025.1.14 --repository x", "pypi mcp-server-git 2025.1.14", false},
		{"uvx mcp-server-git@latest", "pypi mcp-server-git latest", true},
		{"uvx --python 3.12 --from desk>=1.0 desk-mcp", "pypi desk >=1.0", true},
		{"uvx --from desk==1.* desk-mcp", "pypi desk 1.*", true},
		{"uv tool run desk==1.0", "pypi desk 1.0", false},
		{"uv run desk.py", "", false},
		{"pipx run --spec desk==1.0 desk-mcp", "pypi desk 1.0", false},
		{"docker run -i --rm mcp/postgres", "docker mcp/postgres", true},
		{"docker run -i --rm -e DSN ghcr.io/acme/desk:1.4.2 --x", "docker ghcr.io/acme/desk 1.4.2", false},
		{"docker run --rm -it --mount type=bind,src=/a,dst=/b mcp/fs:latest", "docker mcp/fs latest", true},
		{"docker run --network=none localhost:5000/desk", "docker localhost:5000/desk", true},
		{"docker run -ie DSN desk:2", "docker desk 2", false},
		{"docker run -eDSN desk:2", "docker desk 2", false},
		{"docker --context far run --rm desk@sha256:" + hex, "docker desk sha256:" + hex, false},
		{"podman run --rm desk", "docker desk", true},
		{"docker compose run desk", "", false},
		{"docker exec -i desk mcp", "", false},
		{"go run example.com/desk@v1.2.3", "go example.com/desk v1.2.3", false},
		{"go run -mod=mod example.com/desk@latest -v", "go example.com/desk latest", true},
		{"go run -C sub ./cmd/desk", "", false},
		{"go run .", "", false},
		{"deno run -A npm:@acme/desk@1.0.0", "npm @acme/desk 1.0.0", false},
		{"env X=1 npx desk@1.0.0", "npm desk 1.0.0", false},
		{"sh -c npx", "", false},
		{"orders-mcp --stdio", "", false},
	} {
		s := pins.Describe(pins.Start{Command: strings.Fields(row.command)}, "")
		if got := s.Package.String(); got != row.want || s.Package.Floating() != row.floating {
			t.Errorf("%s: got %q, floating %t", row.command, got, s.Package.Floating())
		}
	}
}

func TestSecretsAreNotDescribed(t *testing.T) {
	for _, row := range []struct{ command, want []string }{
		{[]string{"desk", "--token", "CANARY"}, []string{"desk", "--token", "<hidden>"}},
		{[]string{"desk", "--api-key=CANARY"}, []string{"desk", "--api-key=<hidden>"}},
		{[]string{"docker", "run", "-e", "TOKEN=CANARY", "desk"}, []string{"docker", "run", "-e", "TOKEN=<hidden>", "desk"}},
		{[]string{"desk", "postgres://desk:CANARY@db/orders"}, []string{"desk", "<hidden>"}},
		{[]string{"desk", "--dsn", "user=desk CANARY"}, []string{"desk", "--dsn", "<hidden>"}},
		{[]string{"desk", "x-CANARY-of-the-variable"}, []string{"desk", "<hidden>"}},
		{[]string{"desk", "--verbose", "--token", "--quiet"}, []string{"desk", "--verbose", "--token", "--quiet"}},
		{[]string{"npx", "-y", "@acme/desk@1.4.2", "/srv/orders"}, []string{"npx", "-y", "@acme/desk@1.4.2", "/srv/orders"}},
	} {
		s := pins.Describe(pins.Start{Command: row.command, Env: map[string]string{"DESK_TOKEN": "CANARY-of-the-variable", "REGION": "desk"}}, "desk")
		if diff := cmp.Diff(row.want, s.Command); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if s.Identity != action.ServerID(row.command, "", []string{"DESK_TOKEN", "REGION"}, "desk") {
			t.Errorf("%v: the identity is not that of the whole command", row.want)
		}
	}
}

func TestAuthPath(t *testing.T) {
	env := map[string]string{}
	for _, e := range []string{"DATABASE_URL", "GITHUB_PERSONAL_ACCESS_TOKEN", "GH_PAT", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY",
		"GOOGLE_APPLICATION_CREDENTIALS", "SSH_AUTH_SOCK", "PGPASSWORD", "SENTRY_DSN", "REGION", "PATH_PREFIX", "LOG_LEVEL", "KEYBOARD", "AUTHOR"} {
		env[e] = "x"
	}
	want := []string{"AWS_SECRET_ACCESS_KEY", "DATABASE_URL", "GH_PAT", "GITHUB_PERSONAL_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
		"OPENAI_API_KEY", "PGPASSWORD", "SENTRY_DSN", "SSH_AUTH_SOCK"}
	s := pins.Describe(pins.Start{Command: []string{"desk"}, Env: env}, "")
	if diff := cmp.Diff(want, s.AuthPath); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLeaks(t *testing.T) {
	s := pins.Start{Env: map[string]string{"DESK_TOKEN": `CANA"RY-1`, "REGION": "eu-central-1", "PIN_TOKEN": "short"}}
	if got := s.Leaks([]byte(`{"description":"as CANA\"RY-1 in eu-central-1, short"}`)); !cmp.Equal(got, []string{"DESK_TOKEN"}) {
		t.Errorf("got %v", got)
	}
	if got := s.Leaks([]byte(`{"description":"in eu-central-1"}`)); got != nil {
		t.Errorf("got %v", got)
	}
}

func TestPlausible(t *testing.T) {
	for name, want := range map[string]bool{
		"Read_File": true, "a/b.c-d": true, "": false, "re\u200bad": false, "rеad": false, "a b": false, "a\n": false, "a\x7f": false,
		strings.Repeat("x", 256): true, strings.Repeat("x", 257): false,
	} {
		if pins.Plausible(name) != want {
			t.Errorf("%q: want %t", name, want)
		}
	}
}

func TestDistinct(t *testing.T) {
	var list []pins.Tool
	for _, raw := range []string{`{"name":"look"}`, `{"name":"read"}`, `{"name":"Read"}`, `{"name":"note"}`, `{"name":"look"}`, `{"name":"READ"}`} {
		list = append(list, tool(t, raw))
	}
	names := func(tools []pins.Tool) (out []string) {
		for _, t := range tools {
			out = append(out, t.Name)
		}
		return out
	}
	kept, alike := pins.Distinct(list)
	got := [][]string{names(kept)}
	for _, g := range alike {
		got = append(got, names(g))
	}
	if diff := cmp.Diff([][]string{{"note"}, {"look", "look"}, {"read", "Read", "READ"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
