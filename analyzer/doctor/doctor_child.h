/* What doctor runs in child processes: this program again, with the task in the variable DOCTOR_CHILD. */
#pragma once

int doctor_ask_driver(void);
int doctor_ask_nvml(void);
