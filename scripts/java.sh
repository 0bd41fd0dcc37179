# Source this: finds Java 17 or 21 for Spark through JAVA_HOME, then PATH, or stops with what to install.
# Sets JAVA_HOME when it is the one to use and unsets it when PATH has the right Java instead.

java_version() { # the major version that a java program says, or nothing
    "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

java_install_command() {
    if [ "$(uname -s)" = Darwin ]; then
        # Homebrew puts it where nothing looks: the second half looks there.
        echo 'brew install openjdk@21 && export JAVA_HOME="$(brew --prefix openjdk@21)/libexec/openjdk.jdk/Contents/Home"'
        return
    fi
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo='sudo '; fi
    like=$(. "${OS_RELEASE:-/etc/os-release}" 2>/dev/null && echo " ${ID:-} ${ID_LIKE:-} ${VERSION_CODENAME:-} ") || like=
    case "$like" in
        *" bookworm "*) echo "${sudo}apt-get update && ${sudo}apt-get install -y openjdk-17-jre-headless" ;;
        *" debian "*) echo "${sudo}apt-get update && ${sudo}apt-get install -y openjdk-21-jre-headless" ;;
        *" fedora "*|*" rhel "*) echo "${sudo}dnf install -y java-21-openjdk-headless" ;;
        *" arch "*) echo "${sudo}pacman -S --noconfirm jre21-openjdk-headless" ;;
        *" suse "*) echo "${sudo}zypper install -y java-21-openjdk-headless" ;;
        *) echo "your package manager's OpenJDK 21, then: export JAVA_HOME=<where it is>" ;;
    esac
}

find_java() {
    found=
    if [ -n "${JAVA_HOME:-}" ]; then
        found=$(java_version "$JAVA_HOME/bin/java")
        case "$found" in 17|21) export JAVA_HOME; return 0 ;; esac
        found="JAVA_HOME=$JAVA_HOME (${found:+Java }${found:-no Java}). "
    fi
    on_path=$(java_version java)
    case "$on_path" in 17|21) unset JAVA_HOME; return 0 ;; esac
    found="$found${on_path:+PATH has Java $on_path.}"
    echo "error: Spark needs Java 17 or 21, and neither JAVA_HOME nor PATH leads to one. $found" >&2
    echo "hint: $(java_install_command)" >&2
    return 1
}

if [ -n "${JAVA_IS_OPTIONAL:-}" ]; then
    find_java 2>/dev/null || echo "no Java 17 or 21: what needs a JVM is not set up, and not among these" >&2
elif [ -n "${WITHOUT_JAVA:-}" ]; then
    echo "WITHOUT_JAVA is set: what needs a JVM will be skipped" >&2
else
    find_java || exit 1
fi
