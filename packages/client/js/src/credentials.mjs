// Credentials: files, and tokens that servers on loopback publish to processes of their user.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";

import { WeftError } from "./errors.mjs";

const MIN_TOKEN_BYTES = 16;
const LOOPBACK = { localhost: "127.0.0.1", "127.0.0.1": "127.0.0.1", "::1": "__1" };

function read(file) {
  try {
    return fs.readFileSync(file);
  } catch (error) {
    throw new WeftError("NOT_FOUND", `the file ${file} cannot be read: ${error.message}`);
  }
}

/** The credentials of options, or else of the environment, or of a server on loopback. */
export function loadCredentials(options, host, port) {
  const file = (option, variable) => option || process.env[variable] || "";
  const certificate = file(options.certificate, "WEFT_CERTIFICATE");
  const key = file(options.key, "WEFT_KEY"), authority = file(options.authority, "WEFT_AUTHORITY");
  const named = [certificate, key, authority].filter(Boolean).length;
  if (named % 3) {
    throw new WeftError(
      "INVALID_ARGUMENT", "credentials need a certificate, its key and an authority");
  }
  const tokenFile = file(options.token, "WEFT_TOKEN");
  let token = tokenFile ? Buffer.from(read(tokenFile).toString().trim()) : Buffer.alloc(0);
  if (tokenFile && token.length < MIN_TOKEN_BYTES) {
    throw new WeftError(
      "INVALID_ARGUMENT", `the token in ${tokenFile} has fewer than ${MIN_TOKEN_BYTES} bytes`);
  }
  if (!tokenFile && !named) token = publishedToken(host, port);
  if (!named) return { token };
  return { certificate: read(certificate), key: read(key), authority: read(authority), token };
}

function isPrivate(stat) {
  return stat.uid === os.userInfo().uid && !(stat.mode & 0o77);
}

/** True if a process holds a lock on a file, as a living server does on its token. */
function isLocked(stat) {
  const locks = fs.readFileSync("/proc/locks", "utf8");
  return locks.split("\n").some((line) => {
    const fields = line.trim().split(/\s+/);
    return fields[1] === "FLOCK" && fields[5]?.endsWith(`:${stat.ino}`);
  });
}

/** The token that a living server of this user has published for a port. */
function publishedToken(host, port) {
  const address = LOOPBACK[host];
  const folders = process.env.WEFT_RUNTIME_DIR
    ? [process.env.WEFT_RUNTIME_DIR]
    : [path.join(os.homedir(), ".local/state/weft/servers"),
       path.join(os.tmpdir(), `weft-${os.userInfo().uid}`)];
  for (const folder of address ? folders : []) {
    const about = fs.lstatSync(folder, { throwIfNoEntry: false });
    if (!about?.isDirectory() || !isPrivate(about)) continue;
    for (const name of fs.readdirSync(folder)) {
      if (!name.endsWith(`-${address}-${port}`)) continue;
      const place = path.join(folder, name);
      const stat = fs.lstatSync(place, { throwIfNoEntry: false });
      if (stat?.isFile() && isPrivate(stat) && isLocked(stat)) return read(place);
    }
  }
  return Buffer.alloc(0);
}
