#!/bin/sh
# Prints figures of a Pacemaker node that ha_cluster_exporter lacks, for node_exporter's textfile collector. Run it as
# root on each node, once in each scrape interval:
#
#   pacemaker-figures.sh > DIR/pacemaker.$$ && mv DIR/pacemaker.$$ DIR/pacemaker.prom
#
# DIR is node_exporter's --collector.textfile.directory.
set -eu

# The whole CIB as this node has it. cib.xml on the disk lacks the status section.
bytes=$(cibadmin --query --local 2>/dev/null | wc -c)
if [ "$bytes" -gt 0 ]; then echo "pacemaker_cib_bytes $bytes"; fi

# The scheduler saves the input of each transition in one of three numbered series; a file has the next number of each.
# A series starts again after pe-input-series-max and its like (4000 and 5000 by default).
set -- /var/lib/pacemaker/pengine/pe-*.last
[ -e "$1" ] || set -- /dev/null
echo "# TYPE pacemaker_transitions_total counter"
awk '{ saved += $1 } END { print "pacemaker_transitions_total " saved + 0 }' "$@"

# Microseconds in Corosync, for each link to each node. This node's own link and one that is down have no samples.
corosync-cmapctl -m stats 2>/dev/null | awk -F '[. ]' '
    $2 != "knet" { next }
    $5 == "latency_ave" { mean[$3 " " $4] = $NF }
    $5 == "latency_samples" && $NF > 0 { sampled[$3 " " $4] }
    $5 == "connected" && $NF > 0 { up[$3 " " $4] }
    END {
        for (link in sampled) if (link in up) {
            split(link, name, " ")
            sub("node", "", name[1]); sub("link", "", name[2])
            printf "corosync_knet_latency_seconds{peer=\"%s\",link=\"%s\"} %.6f\n", name[1], name[2], mean[link] / 1e6
        }
    }'
