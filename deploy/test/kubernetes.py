#!/usr/bin/env python3
"""Renders the Kubernetes manifests and checks them without a cluster.

    kubernetes.py TICKETING_BINARY

Every overlay is rendered by `kubectl kustomize`, and every object in it is held against the schemas
of the three newest Kubernetes versions that the package kubernetes-validate knows, in strict mode:
an unknown field is an error. Objects of other projects (cert-manager, Prometheus' operator) have no
schema there; their kinds are listed below, and an unlisted one is an error.

Schemas say nothing about what belongs together, so this is checked as well: names and selectors
that refer to each other, the rules of the restricted pod security standard, and that each variable
given to the binary is one that it reads.
"""

import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

OVERLAYS = pathlib.Path(__file__).resolve().parent.parent / "kubernetes"
RENDERED = ["base", "overlays/tls", "overlays/monitoring"]
VERSIONS = 3
FOREIGN = {
    "cert-manager.io/v1": {"Certificate", "Issuer"},
    "monitoring.coreos.com/v1": {"PodMonitor", "PrometheusRule"},
}
# Variables that the manifests use to make others.
HELPERS = {"POD_NAME", "POD_NAMESPACE"}

failures = []


def expect(condition, complaint):
    if not condition:
        failures.append(complaint)


def render(overlay):
    command = ["kubectl", "kustomize", str(OVERLAYS / overlay)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


def check_schemas(overlay, objects, versions):
    for item in objects:
        name = f"{overlay}: {item['kind']} {item['metadata']['name']}"
        if item["apiVersion"] in FOREIGN:
            expect(item["kind"] in FOREIGN[item["apiVersion"]], f"{name}: an unknown kind")
            continue
        for version in versions:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                where = ".".join(str(part) for part in error.path)
                expect(False, f"{name}, Kubernetes {version}: {where}: {error.message}")
            except kubernetes_validate.SchemaNotFoundError as error:
                expect(False, f"{name}, Kubernetes {version}: {error.message}")


def one(objects, kind, name="ticketing"):
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    if len(found) != 1:
        sys.exit(f"there are {len(found)} objects {kind} {name}")
    return found[0]


def check_references(overlay, objects, settings):
    stateful_set = one(objects, "StatefulSet")
    spec = stateful_set["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    labels = spec["template"]["metadata"]["labels"].items()
    headless = one(objects, "Service", spec["serviceName"])
    expect(headless["spec"]["clusterIP"] == "None", f"{overlay}: the peers' service has an address")
    expect(headless["spec"]["publishNotReadyAddresses"], f"{overlay}: only ready nodes are found")
    one(objects, "ServiceAccount", pod["serviceAccountName"])

    selectors = {
        "StatefulSet": spec["selector"]["matchLabels"],
        "PodDisruptionBudget": one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        "NetworkPolicy": one(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    }
    for service in (o for o in objects if o["kind"] == "Service"):
        selectors[f"Service {service['metadata']['name']}"] = service["spec"]["selector"]
    for constraint in pod["topologySpreadConstraints"]:
        selectors[constraint["topologyKey"]] = constraint["labelSelector"]["matchLabels"]
    for who, selector in selectors.items():
        expect(selector.items() <= labels, f"{overlay}: {who} selects other pods: {selector}")

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    used = [container[probe]["httpGet"]["port"]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    used += [port["targetPort"] for o in objects if o["kind"] == "Service"
             for port in o["spec"]["ports"]]
    used += [port["port"] for policy in objects if policy["kind"] == "NetworkPolicy"
             for rule in policy["spec"].get("ingress", []) for port in rule["ports"]]
    for name in used:
        expect(name in ports, f"{overlay}: no port is called {name}")

    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    expect(volumes == mounts.keys(), f"{overlay}: volumes {volumes}, mounts {mounts.keys()}")

    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    unknown = environment.keys() - settings - HELPERS
    expect(not unknown, f"{overlay}: the binary does not read {unknown}")
    for name, value in environment.items():
        if name.endswith("_FILE") or name in ("TLS_CERT", "TLS_KEY"):
            expect(any(value.startswith(path + "/") for path in mounts.values()),
                   f"{overlay}: {name} is outside of every volume")
    # As the kubelet would: the pods' names are the members of the cluster.
    peers = environment["CLUSTER_PEERS"].split(",")
    own = [environment["CLUSTER_SELF"].replace("$(POD_NAME)", f"ticketing-{ordinal}")
           for ordinal in range(spec["replicas"])]
    expect(peers == own, f"{overlay}: the members {peers} are not the pods {own}")
    expect(all(f".{spec['serviceName']}." in peer for peer in peers),
           f"{overlay}: the members have no names in the peers' service")
    expect(environment.get("ADMIN_BIND", "").endswith(f":{ports['admin']}"),
           f"{overlay}: the admin endpoint is not on its port")
    expect(pod["terminationGracePeriodSeconds"] >
           container["lifecycle"]["preStop"]["sleep"]["seconds"] + 10,
           f"{overlay}: no time to hand the lead over")
    certificates = [o for o in objects if o["kind"] == "Certificate"]
    for volume in pod["volumes"]:
        if volume["name"] == "tls":
            (certificate,) = [c for c in certificates
                              if c["spec"]["secretName"] == volume["secret"]["secretName"]]
            namespace = stateful_set["metadata"]["namespace"]
            hosts = {peer.replace("$(POD_NAMESPACE)", namespace).split(":")[0] for peer in peers}
            expect(hosts <= set(certificate["spec"]["dnsNames"]),
                   f"{overlay}: the certificate is not for {hosts}")


def check_restricted(overlay, objects):
    """The rules of the restricted pod security standard that concern these pods."""
    labels = one(objects, "Namespace")["metadata"]["labels"]
    expect(labels["pod-security.kubernetes.io/enforce"] == "restricted",
           f"{overlay}: the namespace does not enforce the restricted standard")
    pod = one(objects, "StatefulSet")["spec"]["template"]["spec"]
    expect(pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0,
           f"{overlay}: runs as root")
    expect(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault",
           f"{overlay}: no seccomp profile")
    expect(not any(pod.get(shared) for shared in ("hostNetwork", "hostPID", "hostIPC")),
           f"{overlay}: shares a namespace of the machine")
    expect(all(volume.keys() - {"name"} <= {"secret", "configMap", "emptyDir", "projected"}
               for volume in pod["volumes"]), f"{overlay}: a volume of the machine")
    for container in pod["containers"]:
        context = container["securityContext"]
        expect(context["allowPrivilegeEscalation"] is False, f"{overlay}: may gain privileges")
        expect(context["capabilities"] == {"drop": ["ALL"]}, f"{overlay}: has capabilities")
        expect(context["readOnlyRootFilesystem"], f"{overlay}: may write to its root")
        expect(not any("hostPort" in port for port in container["ports"]),
               f"{overlay}: takes a port of the machine")


def main():
    help_text = subprocess.run([sys.argv[1], "serve", "--help"], check=True, capture_output=True,
                               text=True).stdout
    settings = set(re.findall(r"\[env\s+([A-Z_]+)", help_text))
    versions = sorted(kubernetes_validate.utils.all_versions(),
                      key=lambda version: [int(part) for part in version.split("-")[0].split(".")])
    versions = list(dict.fromkeys(versions))[-VERSIONS:]
    checked = 0
    for overlay in RENDERED:
        objects = render(overlay)
        checked += len(objects)
        check_schemas(overlay, objects, versions)
        check_references(overlay, objects, settings)
        check_restricted(overlay, objects)
    for failure in failures:
        print(failure)
    if failures:
        sys.exit(1)
    print(f"{checked} objects in {len(RENDERED)} renderings, "
          f"valid in strict mode for Kubernetes {', '.join(versions)}")


main()
