/*
 * fusefs/metrics.h - .tblfs/metrics: all figures in the text format of Prometheus.
 */
#ifndef TBLFS_FUSEFS_METRICS_H
#define TBLFS_FUSEFS_METRICS_H

#include <stdio.h>

struct fusefs;

/* Names begin with tblfs_; what counts ends in _total; figures of the same name differ in the label `kind`. */
void metrics_write(struct fusefs *fs, FILE *out);

#endif
