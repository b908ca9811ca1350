//! A session in either direction.

use crate::event::Event;
use crate::{Download, Upload};
use std::time::Duration;

/// A session in either direction. Its methods are those of [`Upload`] and [`Download`].
#[derive(Debug)]
pub enum Session {
    /// The browser sends.
    Upload(Box<Upload>),
    /// The browser receives.
    Download(Box<Download>),
}

impl Session {
    /// Processes bytes of the lane. Returns the number of bytes taken.
    pub fn input(&mut self, bytes: &[u8], now: Duration) -> usize {
        match self {
            Session::Upload(upload) => upload.input(bytes, now),
            Session::Download(download) => download.input(bytes, now),
        }
    }

    /// Returns the next bytes to send.
    pub fn output(&mut self) -> Option<&[u8]> {
        match self {
            Session::Upload(upload) => upload.output(),
            Session::Download(download) => download.output(),
        }
    }

    /// Removes the bytes that [`Session::output`] returned.
    pub fn output_sent(&mut self, now: Duration) {
        match self {
            Session::Upload(upload) => upload.output_sent(now),
            Session::Download(download) => download.output_sent(now),
        }
    }

    /// Returns the next event for the page.
    pub fn next_event(&mut self) -> Option<Event> {
        match self {
            Session::Upload(upload) => upload.next_event(),
            Session::Download(download) => download.next_event(),
        }
    }

    /// Reports the time.
    pub fn tick(&mut self, now: Duration) {
        match self {
            Session::Upload(upload) => upload.tick(now),
            Session::Download(download) => download.tick(now),
        }
    }

    /// Reports that the lane is lost.
    pub fn lane_lost(&mut self, now: Duration) {
        match self {
            Session::Upload(upload) => upload.lane_lost(now),
            Session::Download(download) => download.lane_lost(now),
        }
    }

    /// Stops the job at the request of the user.
    pub fn stop(&mut self, now: Duration) {
        match self {
            Session::Upload(upload) => upload.stop(now),
            Session::Download(download) => download.stop(now),
        }
    }

    /// Returns the upload.
    pub fn upload(&mut self) -> Option<&mut Upload> {
        if let Session::Upload(upload) = self { Some(upload) } else { None }
    }

    /// Returns the download.
    pub fn download(&mut self) -> Option<&mut Download> {
        if let Session::Download(download) = self { Some(download) } else { None }
    }
}
