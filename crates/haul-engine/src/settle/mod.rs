//! Durability of files that were written: work that waits for a device, and syncs that several
//! files share.

mod device_queues;
mod device_syncs;

pub(crate) use device_queues::{DeviceQueues, DeviceWork, Due, NextWork};
pub(crate) use device_syncs::{DeviceSyncs, FILES_MIN};
